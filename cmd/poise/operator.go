package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
)

// target is a backend as the command line names it.
type target struct{ pool, backend string }

func (t target) String() string { return t.pool + "/" + t.backend }

// parseTarget splits POOL/BACKEND. Names of pools have no slash; those of backends
// may, which are addresses of unix sockets or come from a name.
func parseTarget(arg string) (target, error) {
	pool, backend, _ := strings.Cut(arg, "/")
	if pool == "" || backend == "" {
		return target{}, fmt.Errorf("%q is no backend; write POOL/BACKEND, such as pg/db1", arg)
	}
	return target{pool, backend}, nil
}

// operation is a command about one backend.
type operation struct {
	where socketFlags
	run   func(ctx context.Context, c *admin.Client, t target, args []string) (admin.BackendState, string, error)
}

// command makes the cobra command; check looks at what comes after POOL/BACKEND.
func (o *operation) command(use, short, long string, more int, check func([]string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1+more)(cmd, args); err != nil {
				return err
			}
			if _, err := parseTarget(args[0]); err != nil {
				return err
			}
			if check != nil {
				return check(args[1:])
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return o.where.complete(cmd.Context(), toComplete, func(pool, backend string) string { return pool + "/" + backend })
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			socket, err := o.where.path()
			if err != nil {
				return err
			}
			t, err := parseTarget(args[0])
			if err != nil {
				return err
			}
			s, said, err := o.run(cmd.Context(), admin.NewClient(socket), t, args[1:])
			for _, w := range s.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
	o.where.add(cmd)
	return cmd
}
