package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/daemon"
)

func checkCommand() *cobra.Command {
	var path string
	var explained bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Validate the configuration",
		Long: `Read the configuration as run and reload do, with the certificates and the lists of
prefixes that it names, and print every problem, one a line.

The exit status is 0 if it is valid, 1 if it is not, 2 if it could not be read. What
a start would only warn of, as a certificate that soon expires, is printed after
"warning:" and changes nothing about that.

With --explain, a valid one is followed by what it comes to: who is let in, where
clients go, what backends see, and the rules that pools with source: client need on
this host.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := config.Load(path)
			switch {
			case err == nil:
				warnings, err := daemon.Check(f)
				if err != nil {
					return err
				}
				for _, w := range warnings {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d services, %d pools\n", path, len(f.Services), len(f.Pools))
				if err == nil && explained {
					err = explain(cmd.OutOrStdout(), f)
				}
				return err
			case errors.As(err, new(config.Problems)):
				return err
			}
			return &exitError{exitUsage, err}
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&explained, "explain", false, "say what the configuration comes to")
	return cmd
}

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", defaultConfig, "configuration `file`; conf.d beside it is read too")
}
