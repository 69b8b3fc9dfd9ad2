package resolve

import (
	"context"
	"sync"
	"time"

	"github.com/poise-lb/poise/internal/keyed"
)

// name is one name under watch, with the goroutine that looks it up.
type name struct {
	// Set once.
	resolver *Resolver
	life     *keyed.Life
	poke     chan struct{} // capacity 1: want has changed
	asked    chan struct{} // closed when a lookup has ended

	mu    sync.Mutex // guards the following
	want  Target
	abort context.CancelFunc // of the lookup in flight, if any
	rec   record
}

// newName starts watching.
func newName(r *Resolver, life *keyed.Life, want Target) *name {
	n := &name{
		resolver: r, life: life, want: want,
		poke: make(chan struct{}, 1), asked: make(chan struct{}),
		rec: record{Status: Status{Since: time.Now()}},
	}
	life.Go(n.run)
	return n
}

// update hands over a changed target. It does not wait for the goroutine.
func (n *name) update(want Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.want.equal(want) {
		return
	}
	n.want = want
	n.rec.tried = false
	if n.abort != nil {
		n.abort()
	}
	select {
	case n.poke <- struct{}{}:
	default:
	}
}

// run is the life of a name's goroutine: look up, wait until that has expired,
// again.
func (n *name) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for first := true; n.life.Err() == nil; {
		wait, ok := n.ask()
		if ok && first {
			close(n.asked)
			first = false
		}
		timer.Reset(wait)
		select {
		case <-n.life.Done():
		case <-n.poke:
		case <-timer.C:
		}
	}
}

// ask looks the name up once and returns how long to wait before the next time.
// It is not ok if the lookup was given up because something else is wanted.
func (n *name) ask() (wait time.Duration, ok bool) {
	ctx, cancel := context.WithCancel(n.life)
	defer cancel()
	n.mu.Lock()
	want := n.want
	n.abort = cancel
	n.mu.Unlock()

	a := n.resolver.lookup(ctx, want)

	n.mu.Lock()
	n.abort = nil
	if ctx.Err() != nil {
		n.mu.Unlock()
		return 0, false
	}
	now := time.Now()
	changed := n.rec.observe(now, a, want.Limits)
	wait = n.rec.delay(now, want.Limits, n.resolver.rand())
	n.rec.Next = now.Add(wait)
	st := n.rec.Status
	n.mu.Unlock()
	if changed {
		n.tell(want.Key, st)
	}
	return wait, true
}

// tell tells of a change, unless the name is removed.
func (n *name) tell(key Key, st Status) {
	n.life.Tell(func() { n.resolver.onChange(key, st) })
}

func (n *name) snapshot() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rec.Status
}
