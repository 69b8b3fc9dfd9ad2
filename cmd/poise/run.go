package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/daemon"
	"github.com/poise-lb/poise/internal/signals"
)

func runCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the load balancer in the foreground",
		Long: `Run the load balancer in the foreground (systemd Type=notify).

  SIGHUP            reload the configuration
  SIGTERM, SIGINT   stop: /readyz fails, then no new connections, then open ones
                    are given the time of runtime.drain
  a second one      stop now

The log goes to standard error, the access log where log.access says.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reloads, stops, release := signals.Take()
			defer release()
			return daemon.Run(cmd.Context(), daemon.Options{
				Path:       path,
				Version:    version,
				Stdout:     os.Stdout,
				Stderr:     os.Stderr,
				Reloads:    reloads,
				Stops:      stops,
				Standalone: true,
			})
		},
	}
	configFlag(cmd, &path)
	return cmd
}
