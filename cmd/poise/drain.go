package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/plural"
)

func drainCommand() *cobra.Command {
	var w waiting
	o := &operation{}
	o.run = func(ctx context.Context, c *admin.Client, t target, _ []string) (admin.BackendState, string, error) {
		s, err := c.SetState(ctx, t.pool, t.backend, admin.StateRequest{State: admin.OperatorDrain})
		if err != nil || !w.wait {
			return s, fmt.Sprintf("%s gets no new connections, %d %s open", t, s.Connections, plural.Are(s.Connections)), err
		}
		said, err := w.until(ctx, c, t, s)
		return s, said, err
	}
	cmd := o.command("drain POOL/BACKEND", "Send no new connections to a backend",
		`Send no new connections to a backend. Open ones go on, for as long as they like.

It holds through reloads and restarts until 'poise ready', or until the backend is
taken out of the configuration.

With --wait the command ends when the last connection has. If that is not before
the deadline, its exit status is 1, and the backend goes on draining; with --close
what is still open then is closed, and the exit status is 0.`, 0, nil)
	f := cmd.Flags()
	f.BoolVar(&w.wait, "wait", false, "wait until no connection is open")
	f.DurationVar(&w.deadline, "deadline", 0, "with --wait: for no longer than this `time`, such as 30s (default: no limit)")
	f.BoolVar(&w.close, "close", false, "with --deadline: then close what is still open")
	cmd.PreRunE = func(*cobra.Command, []string) error { return w.check(f.Changed("deadline")) }
	return cmd
}

// waiting is how a drain waits.
type waiting struct {
	wait, close bool
	deadline    time.Duration // 0 = none
}

func (w *waiting) check(limited bool) error {
	switch {
	case limited && w.deadline <= 0:
		return &exitError{exitUsage, errors.New("--deadline must be positive, such as 30s")}
	case limited && !w.wait:
		return &exitError{exitUsage, errors.New("--deadline has no effect without --wait")}
	case w.close && !limited:
		return &exitError{exitUsage, errors.New("--close has no effect without --wait and --deadline; 'poise maint' closes at once")}
	}
	return nil
}

const (
	// waitPace is how often a drain is looked at: often enough for a script, and
	// nothing to the daemon.
	waitPace = 200 * time.Millisecond
	// closing is how long connections that are being closed may take to be gone.
	closing = 5 * time.Second
)

// until waits until no connection to t is open, and says what came of it.
func (w *waiting) until(ctx context.Context, c *admin.Client, t target, s admin.BackendState) (string, error) {
	var limit <-chan time.Time
	if w.deadline > 0 {
		limit = time.After(w.deadline)
	}
	closed := int64(-1) // not yet
	for s.Connections > 0 {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-limit:
			if !w.close || closed >= 0 {
				return "", fmt.Errorf("%s is not drained after %s: %s %s open; 'poise conns --pool %s --backend %s' lists them",
					t, w.deadline, plural.Of(s.Connections, "connection"), plural.Are(s.Connections), t.pool, t.backend)
			}
			var err error
			if s, err = c.SetState(ctx, t.pool, t.backend, admin.StateRequest{State: admin.OperatorDrain, Close: true}); err != nil {
				return "", err
			}
			closed, limit = s.Closed, time.After(closing)
		case <-time.After(waitPace):
			var err error
			if s, err = c.Backend(ctx, t.pool, t.backend); err != nil {
				return "", err
			}
			if s.Operator == admin.OperatorReady {
				return "", fmt.Errorf("%s is not drained: somebody has made it ready again meanwhile", t)
			}
		}
	}
	if closed > 0 {
		return fmt.Sprintf("%s is drained: %s %s closed after %s", t, plural.Of(closed, "connection"), plural.Were(closed), w.deadline), nil
	}
	return fmt.Sprintf("%s is drained: no connection is open", t), nil
}
