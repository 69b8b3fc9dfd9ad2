package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
)

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
