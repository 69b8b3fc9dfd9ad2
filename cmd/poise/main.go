// Command poise is a layer-4 load balancer for Linux.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// version is stamped by the linker: -X main.version=v1.2.3.
var version = "dev"

// defaultConfig is read when -c is not given.
const defaultConfig = "/etc/poise/poise.yaml"

// The exit codes, as docs/operations.md lists them.
const (
	exitFailure = 1
	exitUsage   = 2
)

// exitError carries an exit code of its own, and nothing more to say if err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	os.Exit(execute(rootCommand(), os.Args[1:]))
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "poise",
		Short: "A layer-4 load balancer",
		Long:  "Poise balances TCP connections and UDP sessions over backends it checks, one decision for each.",
		Example: `  poise demo                                      a whole system at work, on loopback
  poise check --explain poise.yaml                is it valid, and what does it come to?
  poise run --config poise.yaml                   start
  poise status                                    how is it?
  poise reload                                    take up a changed file`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("poise {{.Version}}\n")
	root.AddCommand(
		runCommand(), checkCommand(),
		statusCommand(), connsCommand(), reloadCommand(),
		drainCommand(), readyCommand(), maintCommand(), weightCommand(),
		benchCommand(), demoCommand(),
		versionCommand(),
	)
	return root
}

// execute runs a command line, prints what went wrong and returns the exit code.
// What is wrong with a command line is found out before any RunE begins, and is
// the only kind of error that is answered with a hint at the help.
func execute(root *cobra.Command, args []string) int {
	began := false
	markRuns(root, &began)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return exit.code
	}
	if began {
		return exitFailure
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "See '%s --help'.\n", cmd.CommandPath())
	return exitUsage
}

// markRuns has every command below c note that its work has begun.
func markRuns(c *cobra.Command, began *bool) {
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*began = true
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		markRuns(sub, began)
	}
}
