// Loadtool is the part of the comparison benchmark (scripts/bench.sh) that no
// packaged program does: holding thousands of idle connections while weighing
// the proxy that carries them, sending at a fixed rate whatever the answers do,
// and turning all samples into one table. It speaks PING of the Redis protocol
// and knows nothing of Poise, so that it cannot favour it.
//
//	loadtool hold   -addr A -pid P [-warm N] [-conns N] [-settle D]
//	loadtool rate   -addr A -rate N [-conns N] [-warm D] [-duration D]
//	loadtool cpu    -pid P
//	loadtool report [-out FILE] [-machine TEXT] < samples
//
// hold and rate print "metric value" lines; cpu prints seconds of user and
// system time; report prints a Markdown table. A process is always taken with
// its descendants, because nginx does its work in children.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "loadtool:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "hold":
		return holdCommand(args, out)
	case "rate":
		return rateCommand(args, out)
	case "cpu":
		return cpuCommand(args, out)
	case "report":
		return reportCommand(args, in, out)
	}
	return fmt.Errorf("unknown command %q: hold, rate, cpu or report", command)
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
