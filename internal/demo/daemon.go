package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/daemon"
)

// runningDaemon is a real daemon inside this process.
type runningDaemon struct {
	log    tail
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended
}

// startDaemon runs a daemon on a configuration and returns when it serves.
// The caller must stop it.
func startDaemon(ctx context.Context, text, version string) (*runningDaemon, error) {
	file, err := config.Parse("demo.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &runningDaemon{cancel: cancel, ended: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(d.ended)
		d.err = daemon.Run(ctx, daemon.Options{
			File:    file,
			Version: version,
			Stdout:  &d.log,
			Stderr:  &d.log,
			Ready:   func(*daemon.Daemon) { close(ready) },
		})
	}()
	select {
	case <-ready:
		return d, nil
	case <-d.ended:
		return nil, errors.Join(d.stop(), errors.New("the daemon did not start"))
	}
}

// stop ends the daemon if it still runs and returns why it failed.
func (d *runningDaemon) stop() error {
	d.cancel()
	<-d.ended
	if d.err == nil {
		return nil
	}
	return fmt.Errorf("the demo's daemon: %w\n%s", d.err, strings.Join(d.log.last(10), "\n"))
}
