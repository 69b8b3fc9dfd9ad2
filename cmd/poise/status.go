package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
)

func statusCommand() *cobra.Command {
	var (
		where  socketFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show services, pools and backends",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, err := where.path()
			if err != nil {
				return err
			}
			s, err := admin.NewClient(socket).Status(cmd.Context(), true)
			if err != nil {
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
