package main

import (
	"math"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/daemon"
	"github.com/poise-lb/poise/internal/signals"
)

// firstFree is the first descriptor after those of standard input, output and error.
const firstFree = 3

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
			// Check programs must not inherit descriptors that the program which started us
			// left open. Without close_range(2), which came with Linux 5.11, they do.
			_ = unix.CloseRange(firstFree, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
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
