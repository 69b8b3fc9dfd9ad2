package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/poise-lb/poise/internal/demo"
	"github.com/spf13/cobra"
)

func demoCommand() *cobra.Command {
	o := demo.Options{Version: version}
	balances := strings.Join(demo.Balances(), ", ")
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a whole system on loopback: backends, the balancer, load, a live table",
		Long: `Start three backends, a real daemon in front of them and steady load, all on free
ports of the loopback interface, and show what happens while one backend is
slowed, killed and revived. The configuration is printed first; it is a real one.

On a terminal a live table shows it until you interrupt it. Without one, or with
--duration, which plays the script once in that time, each scene leaves a line.
The exit status is 0 only if not one client connection failed.`,
		Example: `  poise demo
  poise demo --balance round-robin
  poise demo --duration 10s`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("duration") && o.Duration < demo.Least:
				return fmt.Errorf("--duration %v: want at least %v, or there is nothing to see", o.Duration, demo.Least)
			case !slices.Contains(demo.Balances(), o.Balance):
				return fmt.Errorf("--balance %q: want one of %s", o.Balance, balances)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			// After the first signal the next one has its default effect again.
			defer context.AfterFunc(ctx, stop)()
			return demo.Run(ctx, cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().StringVar(&o.Balance, "balance", "least-conn", "the pool's `algorithm`: "+balances)
	cmd.Flags().DurationVar(&o.Duration, "duration", 0, "play the script once in so long (0 = over and over until interrupted)")
	return cmd
}
