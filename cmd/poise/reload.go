package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
)

func reloadCommand() *cobra.Command {
	var where socketFlags
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the running daemon reload its configuration",
		Long: `Have the running daemon read its configuration anew, and print what changed.

All of it takes effect or nothing does: if anything is wrong with it, the reason is
printed, the exit status is 1, and the old configuration goes on serving.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, err := where.path()
			if err != nil {
				return err
			}
			res, err := admin.NewClient(socket).Reload(cmd.Context())
			for _, w := range res.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
			}
			switch {
			case err != nil:
				return err
			case !res.OK:
				return errors.New(res.Error)
			case len(res.Changes) == 0:
				res.Changes = []string{"nothing changed"}
			}
			for _, line := range res.Changes {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
					return err
				}
			}
			return nil
		},
	}
	where.add(cmd)
	return cmd
}
