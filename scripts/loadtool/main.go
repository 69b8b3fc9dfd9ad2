// Loadtool is the part of the comparison benchmark (scripts/bench.sh) that no
// packaged program does: holding thousands of idle connections while weighing
// the proxy that carries them, sending at a fixed rate whatever the answers do,
// loads of datagrams and of TLS that cost less than what they measure, and
// turning all samples into one table. Where it needs a protocol it speaks PING
// of Redis. It knows nothing of Poise, so that it cannot favour it.
//
//	loadtool hold      -addr A -pid P [-warm N] [-conns N] [-settle D]
//	loadtool rate      -addr A -rate N [-conns N] [-warm D] [-duration D]
//	loadtool udp-rate  -addr A [-clients N] [-outstanding N] [-size N] [-trains] [-warm D] [-duration D]
//	loadtool udp-blast -addr A -sink A [-sockets N] [-size N] [-trains] [-window N | -rate N] ...
//	loadtool tls-handshakes -addr A [-clients N] [-warm D] [-duration D]
//	loadtool tls-first -addr A [-connections N]
//	loadtool tls-bulk  -addr A [-up] [-warm D] [-duration D]
//	loadtool udp-echo  -listen A [-threads N] [-trains]
//	loadtool stream    -listen A
//	loadtool tls-cert  -dir D
//	loadtool cpu       -pid P
//	loadtool report    [-out FILE] [-machine TEXT] < samples
//
// Loads print "metric value" lines; cpu prints seconds of user and system time;
// report prints a Markdown table; the servers run until they are told to end. A
// process is always taken with its descendants, because nginx does its work in
// children.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "loadtool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "hold":
		return holdCommand(args, out)
	case "rate":
		return rateCommand(args, out)
	case "udp-rate":
		return udpRateCommand(args, out)
	case "udp-blast":
		return udpBlastCommand(args, out)
	case "tls-handshakes":
		return tlsHandshakesCommand(args, out)
	case "tls-first":
		return tlsFirstCommand(args, out)
	case "tls-bulk":
		return tlsBulkCommand(args, out)
	case "udp-echo":
		return udpEchoCommand(ctx, args)
	case "stream":
		return streamCommand(ctx, args)
	case "tls-cert":
		return tlsCertCommand(args)
	case "cpu":
		return cpuCommand(args, out)
	case "report":
		return reportCommand(args, in, out)
	}
	return fmt.Errorf("unknown command %q: see the comment at the head of scripts/loadtool/main.go", command)
}

// serve runs a server until a signal, or ctx, ends it. Loads do not do this: they
// have nothing to finish and end at once.
func serve(ctx context.Context, server func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return server(ctx)
}

func cpuCommand(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cpu", flag.ContinueOnError)
	pid := flags.Int("pid", 0, "process to measure, with its descendants")
	if err := flags.Parse(args); err != nil {
		return err
	}
	seconds, err := cpuSeconds(*pid)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%.2f\n", seconds)
	return err
}
