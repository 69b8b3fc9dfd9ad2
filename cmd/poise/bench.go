package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/loadgen"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Make load and measure: throughput, latency, errors, who served",
	}
	cmd.AddCommand(benchTCPCommand(), benchUDPCommand())
	return cmd
}

func benchTCPCommand() *cobra.Command {
	o := loadgen.Options{
		Clients:       50,
		Duration:      10 * time.Second,
		PerConnection: 1,
		Size:          64,
		Timeout:       10 * time.Second,
	}
	cmd := &cobra.Command{
		Use:   "tcp ADDR",
		Short: "Load a TCP address that answers lines",
		Long: `Load a TCP address, host:port, and report throughput, latency, errors and how
many requests each backend served.

A request is one line. The backends must send it back, either as it is (any echo
server) or after a line with their name, which is how they are told apart. Every
reply is compared with its request.

Without --rate each of the clients starts its next request when the last one has
ended. With --rate requests start on a fixed schedule, and latency counts from
the moment a request was due, so that a stall shows on all it delayed.

Interrupt it to end early: requests that are out are finished and the report is
printed. The exit status is 1 if any request failed.`,
		Example: `  poise bench tcp 127.0.0.1:5432
  poise bench tcp db.internal:5432 --clients 200 --rate 5000 --duration 1m
  poise bench tcp 127.0.0.1:5432 --requests 300 --clients 1 --json`,
	}
	benchFlags(cmd, &o, "a client closes its connection", "its connect included")
	return cmd
}

func benchUDPCommand() *cobra.Command {
	o := loadgen.Options{
		UDP:      true,
		Clients:  50,
		Duration: 10 * time.Second,
		Size:     64,
		Timeout:  time.Second,
	}
	cmd := &cobra.Command{
		Use:   "udp ADDR",
		Short: "Load a UDP address that answers datagrams",
		Long: `Load a UDP address, host:port, and report throughput, latency, losses and how
many requests each backend served.

A request is one datagram. The backends must send it back in one, either as it is
(any echo server) or after a line with their name, which is how they are told
apart. Every reply is compared with its request. A request without a reply when
the timeout ends is lost.

Each client has one request out, from a socket of its own. It keeps the socket,
and so its session with a balancer, until --requests-per-connection or the first
request that fails. Without --rate it starts the next request when the last one
has ended. With --rate requests start on a fixed schedule, and latency counts from
the moment a request was due, so that a stall shows on all it delayed.

Interrupt it to end early: requests that are out are finished and the report is
printed. The exit status is 1 if any request failed, and a loss is a failure.`,
		Example: `  poise bench udp 127.0.0.1:5353
  poise bench udp dns.internal:5353 --clients 200 --rate 5000 --duration 1m
  poise bench udp 127.0.0.1:5353 --requests 300 --requests-per-connection 1 --json`,
	}
	benchFlags(cmd, &o, "a client takes another socket", "after which it is lost")
	return cmd
}

// benchFlags gives cmd its argument and flags, and o what they say; what happens
// after so many requests, and what a timeout means, is not the same for all.
func benchFlags(cmd *cobra.Command, o *loadgen.Options, afterRequests, timeout string) {
	var asJSON bool
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return errors.New("ADDR is missing: the address to load, host:port")
		case 1:
			return nil
		}
		return fmt.Errorf("one ADDR is wanted, and there is %q after %s", args[1], args[0])
	}
	// Here and not in RunE: what is wrong with a flag is a usage error.
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		o.Addr = args[0]
		if o.Requests > 0 && !cmd.Flags().Changed("duration") {
			o.Duration = 0
		}
		return o.Validate()
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runBench(cmd, *o, asJSON)
	}
	longest := loadgen.MaxSize
	if o.UDP {
		longest = loadgen.MaxDatagram
	}
	f := cmd.Flags()
	f.IntVar(&o.Clients, "clients", o.Clients, "concurrent clients")
	f.DurationVar(&o.Duration, "duration", o.Duration, "start requests for so long (0 = no limit, the default with --requests)")
	f.Uint64Var(&o.Requests, "requests", 0, "start so many requests (0 = no limit)")
	f.Float64Var(&o.Rate, "rate", 0, "requests per second on a fixed schedule (0 = each client as fast as replies come)")
	f.IntVar(&o.PerConnection, "requests-per-connection", o.PerConnection, "requests before "+afterRequests+" (0 = no limit)")
	f.IntVar(&o.Size, "size", o.Size, fmt.Sprintf("bytes of a request, 1 to %d", longest))
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "of one request, "+timeout)
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
}

func runBench(cmd *cobra.Command, o loadgen.Options, asJSON bool) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the next one has its default effect again.
	defer context.AfterFunc(ctx, stop)()

	resolved, err := o.Resolve(ctx)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !asJSON {
		fmt.Fprintf(out, "%s\n\n", o.Title())
	}
	res, err := loadgen.Run(ctx, resolved)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(res.Report(o))
	} else {
		err = res.Write(out, o)
	}
	switch {
	case err != nil:
		return err
	case res.Failed > 0:
		return fmt.Errorf("%d of %d requests failed", res.Failed, res.Failed+res.Requests)
	case res.Requests == 0:
		return errors.New("no request was made")
	}
	return nil
}
