package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/plural"
)

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
