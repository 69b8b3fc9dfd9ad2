package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/poise-lb/poise/l4"
)

// After the second signal nothing is waited for any longer than this; together
// it is not much more than a second.
const (
	lastWords = 300 * time.Millisecond // until connections that are killed are accounted for
	lastClose = 500 * time.Millisecond // until everything is taken down
	// Then lastMessages.
)

// Without one, a disk or a reader of the log that is stuck holds up the end for this long.
const (
	lastLines = time.Second     // for an access log that takes nothing; see spool.Spool.Close
	leaving   = 4 * time.Second // until everything is taken down, lastLines included
)

// serve follows signals until it is told to stop, and stops.
func (d *Daemon) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			d.stop("context ended")
			return
		case s := <-d.options.Stops:
			d.stop(s.String())
			return
		case <-d.options.Reloads:
			d.reloads.ask()
		}
	}
}

// stop ends the daemon, in this order: not ready but accepting, no longer
// accepting, draining, cutting what is left, gone. A second signal is an end to
// all waiting.
func (d *Daemon) stop(why string) {
	hurry, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { d.awaitSecond(hurry, cancel) })
	defer watching.Wait()
	defer cancel()

	limits := d.generation.Load().file.Runtime
	d.log.Info("stopping", "because", why, "pre_stop", limits.PreStop, "drain", limits.Drain)
	d.phase.Store(stopping) // no longer ready, no more reloads
	d.reloads.close()
	d.notify.stopping(limits)
	pause(hurry, limits.PreStop)

	inTime, cancelInTime := context.WithTimeout(hurry, leaving)
	await(inTime, d.stopAccepting)
	cancelInTime()
	d.log.Info("draining", "connections", d.data.active())
	d.awaitIdle(hurry, limits.Drain)
	if left := d.data.active(); left > 0 {
		outcome := l4.Drained
		if hurry.Err() != nil {
			outcome = l4.Killed
		}
		d.log.Warn("closing connections that are still open", "connections", left, "outcome", outcome)
		d.data.kill(outcome)
		d.awaitIdle(context.Background(), lastWords)
	}
	limit, cancelLimit := context.WithTimeout(hurry, leaving-lastClose)
	defer cancelLimit()
	closed := await(limit, d.takeDown)
	select {
	case <-closed:
	case <-time.After(lastClose):
		d.log.Error("something did not end in time; leaving without it")
		return
	}
	d.log.Info("stopped")
}

// awaitSecond calls second when another signal to stop comes, and returns then,
// or when hurry ends otherwise.
func (d *Daemon) awaitSecond(hurry context.Context, second func()) {
	select {
	case <-hurry.Done():
	case <-d.options.Stops:
		second()
	}
}

// stopAccepting returns when no listener is left. A reload that takes effect just now
// is finished first, and none after it gets anywhere.
func (d *Daemon) stopAccepting() {
	d.committing.Lock()
	defer d.committing.Unlock()
	d.data.stopAccepting()
}

// awaitIdle returns when no connection is open, or after limit, or at the end of
// ctx.
func (d *Daemon) awaitIdle(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for d.data.active() > 0 && ctx.Err() == nil {
		pause(ctx, 10*time.Millisecond)
	}
}

// await runs f and returns when it has ended or ctx has; done tells which.
func await(ctx context.Context, f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return ended
}

// pause returns after d, or at the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
