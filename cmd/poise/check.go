package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/config"
)

func checkCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Validate the configuration",
		Long: `Read the configuration as run and reload do, and print every problem, one a line.

The exit status is 0 if it is valid, 1 if it is not, 2 if it could not be read.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := config.Load(path)
			switch {
			case err == nil:
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d services, %d pools\n", path, len(f.Services), len(f.Pools))
				return err
			case errors.As(err, new(config.Problems)):
				return err
			}
			return &exitError{exitUsage, err}
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", defaultConfig, "configuration `file`; conf.d beside it is read too")
}
