// Package demo shows a whole system at work on loopback: backends, a real daemon in
// front of them, steady load, and a script in which one backend is slowed, killed and
// revived.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// Options say what is shown.
type Options struct {
	Balance  string        // the pool's algorithm, one of Balances
	Duration time.Duration // the script is played once in this time, at least Least; 0 = over and over
	Version  string        // the daemon's
}

// Run shows the demonstration on out until the script has been played, or ctx
// ends, which is no error. The error says what went wrong, failed connections of
// clients included.
func Run(ctx context.Context, out io.Writer, o Options) error {
	return perform(ctx, out, o, fullScript(o.Balance))
}

// perform sets the stage, plays the script and clears up.
func perform(ctx context.Context, out io.Writer, o Options, script []scene) error {
	cycle := o.Duration
	if cycle == 0 {
		cycle = fullCycle
	}
	s, err := setStage(o.Balance, cycle)
	if err != nil {
		return err
	}
	defer s.clear()
	// None of the parts ends with ctx: the load has to end before the daemon
	// does, and the daemon before the backends do.
	living := context.WithoutCancel(ctx)
	d, err := startDaemon(living, s.config, o.Version)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# This is what it runs on: poise run -c FILE\n%s\n", s.config)

	loading, stopLoad := context.WithCancel(living)
	defer stopLoad()
	loaded := make(chan loadgen.Result, 1)
	go func() { loaded <- s.load(loading) }()
	p := player{
		stage: s, daemon: d, balance: o.Balance, cycle: cycle, once: o.Duration > 0,
		scenes: script, out: out, screen: newScreen(out),
		as: plain, changes: make([][]string, len(script)),
	}
	if p.screen != nil && os.Getenv("NO_COLOR") == "" { // https://no-color.org
		p.as = coloured
	}
	playErr := p.play(ctx)
	stopLoad()
	result := <-loaded
	p.finish(living, result)
	err = errors.Join(playErr, d.stop())
	if result.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d client connections failed", result.Failed, result.Failed+result.Requests))
	}
	return err
}
