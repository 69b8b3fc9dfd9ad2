package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/daemon"
	"github.com/poise-lb/poise/internal/plural"
)

func checkCommand() *cobra.Command {
	var path string
	var explained bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate the configuration",
		Long: `Read the configuration as run and reload do, with the certificates and the lists of
prefixes that it names, and print every problem, one a line.

The exit status is 0 if it is valid, 1 if it is not, 2 if it could not be read. What
a start would only warn of, as a certificate that soon expires or a name that leads
to no address now, is printed after "warning:" and changes nothing about that.

With --explain, a valid one is followed by what it comes to: who is let in, where
clients go, what backends see, all timeouts, limits and checks, which keys are off,
and the rules that pools with source: client need on this host. What follows a limit
after a colon, as in "100 at once: refused_limit", is how the log and the metrics call
the end of those that are beyond it. A value from a variable is shown as it is written.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.Flags().Changed("config") {
				return errors.New("the file is given twice: with --config and without")
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				path = args[0]
			}
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
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %s, %s\n",
					path, plural.Of(len(f.Services), "service"), plural.Of(len(f.Pools), "pool"))
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
