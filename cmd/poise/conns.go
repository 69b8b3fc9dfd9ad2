package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
)

func connsCommand() *cobra.Command {
	var (
		where  socketFlags
		q      admin.ConnQuery
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "conns",
		Short: "List open connections, the oldest first",
		Args:  cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if q.Limit < 1 || q.Limit > admin.MaxConns {
				return &exitError{exitUsage, fmt.Errorf("--limit must be from 1 to %d", admin.MaxConns)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, err := where.path()
			if err != nil {
				return err
			}
			list, err := admin.NewClient(socket).Conns(cmd.Context(), q)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(list)
			}
			if err := admin.ConnTable(cmd.OutOrStdout(), list); err != nil {
				return err
			}
			if len(list.Conns) == q.Limit && q.Limit < admin.MaxConns {
				fmt.Fprintf(cmd.ErrOrStderr(), "these are the oldest %d; --limit %d may show more\n", q.Limit, admin.MaxConns)
			}
			return nil
		},
	}
	where.add(cmd)
	f := cmd.Flags()
	f.StringVar(&q.Pool, "pool", "", "only those of this `pool`")
	f.StringVar(&q.Backend, "backend", "", "only those to this `backend`")
	f.IntVar(&q.Limit, "limit", admin.DefaultConns, "at most so many, the oldest")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completions := map[string]func(pool, backend string) string{
		"pool": func(pool, _ string) string { return pool },
		"backend": func(pool, backend string) string {
			if q.Pool != "" && q.Pool != pool {
				return ""
			}
			return backend
		},
	}
	for flag, text := range completions {
		complete := func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return where.complete(cmd.Context(), prefix, text)
		}
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}
