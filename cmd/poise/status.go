package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
)

func statusCommand() *cobra.Command {
	var (
		where  socketFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "status [POOL...]",
		Short: "Show services, pools and backends",
		Long: `Show services, pools and backends; with the names of pools, these and the services
that use them.`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return where.complete(cmd.Context(), prefix, func(pool, _ string) string {
				if slices.Contains(args, pool) {
					return ""
				}
				return pool
			})
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			socket, err := where.path()
			if err != nil {
				return err
			}
			s, err := admin.NewClient(socket).Status(cmd.Context(), true)
			if err != nil {
				return err
			}
			if err := onlyPools(&s, args); err != nil {
				return err
			}
			if !asJSON {
				return admin.StatusTable(cmd.OutOrStdout(), s)
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(s)
		},
	}
	where.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// onlyPools leaves in s the pools of these names and the services that use them; no
// names are all.
func onlyPools(s *admin.Status, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var all []string
	for _, p := range s.Pools {
		all = append(all, p.Name)
	}
	for _, name := range names {
		near := config.Nearest(name, all)
		switch {
		case slices.Contains(all, name):
		case near != "":
			return fmt.Errorf("there is no pool %q; did you mean %q?", name, near)
		case len(all) == 0:
			return fmt.Errorf("there is no pool %q, nor any other", name)
		default:
			return fmt.Errorf("there is no pool %q; there is %s", name, strings.Join(all[:min(len(all), mostNames)], ", ")+ellipsis(len(all)))
		}
	}
	s.Pools = slices.DeleteFunc(s.Pools, func(p admin.Pool) bool { return !slices.Contains(names, p.Name) })
	s.Services = slices.DeleteFunc(s.Services, func(v admin.Service) bool {
		return !slices.ContainsFunc(strings.Fields(v.Pool), func(pool string) bool { return slices.Contains(names, pool) })
	})
	return nil
}

// mostNames is how many an error lists.
const mostNames = 20

func ellipsis(n int) string {
	if n > mostNames {
		return ", ..."
	}
	return ""
}
