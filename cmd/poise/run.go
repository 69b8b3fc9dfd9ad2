package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/daemon"
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
			// Before anything else, so that no signal is missed or has its default
			// effect, however early it comes.
			signals := make(chan os.Signal, 8)
			signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
			defer signal.Stop(signals)
			// The reader of the access log may go away; traffic must not go with it.
			signal.Ignore(syscall.SIGPIPE)
			return daemon.Run(cmd.Context(), daemon.Options{
				Path:       path,
				Version:    version,
				Stdout:     os.Stdout,
				Stderr:     os.Stderr,
				Signals:    signals,
				Standalone: true,
			})
		},
	}
	configFlag(cmd, &path)
	return cmd
}
