package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/plural"
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

func readyCommand() *cobra.Command {
	o := &operation{}
	o.run = func(ctx context.Context, c *admin.Client, t target, _ []string) (admin.BackendState, string, error) {
		s, err := c.SetState(ctx, t.pool, t.backend, admin.StateRequest{State: admin.OperatorReady})
		said := t.String() + " is ready"
		if s.State != "up" {
			said += ", but " + s.State
			if s.Reason != "" {
				said += " (" + s.Reason + ")"
			}
		}
		return s, said, err
	}
	return o.command("ready POOL/BACKEND", "Take back a drain or maint",
		`Take back a drain or maint: from now on the backend gets new connections again,
unless its checks are against it, which is said.`, 0, nil)
}

func maintCommand() *cobra.Command {
	o := &operation{}
	o.run = func(ctx context.Context, c *admin.Client, t target, _ []string) (admin.BackendState, string, error) {
		s, err := c.SetState(ctx, t.pool, t.backend, admin.StateRequest{State: admin.OperatorMaint})
		return s, fmt.Sprintf("%s is in maintenance, %s %s closed", t, plural.Of(s.Closed, "connection"), plural.Were(s.Closed)), err
	}
	return o.command("maint POOL/BACKEND", "Send no new connections to a backend, and close those that are open",
		`Send no new connections to a backend and close those that are open, at once. To
let them end by themselves: poise drain --wait.

It holds through reloads and restarts until 'poise ready', or until the backend is
taken out of the configuration.`, 0, nil)
}

func weightCommand() *cobra.Command {
	o := &operation{}
	o.run = func(ctx context.Context, c *admin.Client, t target, args []string) (admin.BackendState, string, error) {
		weight, err := parseWeight(args[0])
		if err != nil {
			return admin.BackendState{}, "", err
		}
		s, err := c.SetWeight(ctx, t.pool, t.backend, weight)
		if weight == nil {
			return s, fmt.Sprintf("%s has the weight of the file, %d", t, s.Weight), err
		}
		return s, fmt.Sprintf("%s has the weight %d (file: %d)", t, s.Weight, s.FileWeight), err
	}
	return o.command("weight POOL/BACKEND N|auto", "Give a backend another weight at run time",
		`Give a backend another weight, 0 to 65535, in place of the one in the configuration
file, which 'auto' restores. With 0 it gets no new connections.

It holds through reloads and restarts until the weight in the file is edited: then
the file counts.`, 1, func(args []string) error { _, err := parseWeight(args[0]); return err })
}

func parseWeight(arg string) (*int, error) {
	if arg == "auto" {
		return nil, nil
	}
	n, err := strconv.ParseUint(arg, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%q is no weight; write a number from 0 to 65535, or auto for that of the file", arg)
	}
	weight := int(n)
	return &weight, nil
}
