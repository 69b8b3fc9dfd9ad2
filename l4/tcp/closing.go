package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
)

// A closer closes a worker's connections to one backend evenly over some time, so
// that their clients do not all come back at once. It keeps no list of them, which
// would have to learn of every one that ends by itself: at each step it counts
// those that are left and closes the part that is due.
type closer struct {
	worker  *worker
	backend *balance.Backend
	outcome l4.Outcome
	before  time.Duration // connections accepted later are left alone
	until   time.Duration
	pace    time.Duration
	timer   loop.Timer
}

// closerPace is the shortest time between two steps of a closer.
const closerPace = 20 * time.Millisecond

// closeBackend ends the connections to b; those that are still being made go to
// another backend at once.
func (w *worker) closeBackend(b *balance.Backend, o l4.Outcome, spread time.Duration, called time.Time) {
	// The loop comes to it some time after the call, and to newer connections before.
	before := w.loop.Precise() - time.Since(called)
	w.closeAll(o, func(c *conn) bool {
		switch {
		case c.lease.Backend() != b:
		case c.phase >= relaying:
			return spread <= 0 && c.start <= before
		case c.attempt <= before:
			c.abandon()
			c.connect()
		}
		return false
	})
	if spread <= 0 {
		return
	}
	k := &closer{worker: w, backend: b, outcome: o, before: before}
	k.until = w.loop.Now() + spread
	k.pace = max(spread/100, closerPace)
	k.timer.Owner = k
	k.Expired(&k.timer)
}

// Expired is a step.
func (k *closer) Expired(*loop.Timer) {
	w := k.worker
	matches := func(c *conn) bool { return c.lease.Backend() == k.backend && c.start <= k.before }
	n := 0
	for c := w.conns.first; c != nil; c = c.next {
		if matches(c) {
			n++
		}
	}
	if n == 0 {
		return
	}
	due := n
	if left := k.until - w.loop.Now(); left > 0 {
		steps := int(left/k.pace) + 1
		due = (n + steps - 1) / steps
		// With fewer connections than steps the last ones wait.
		w.loop.Start(&k.timer, min(max(k.pace, left/time.Duration(n)), left))
	}
	w.closeAll(k.outcome, func(c *conn) bool {
		if due == 0 || !matches(c) {
			return false
		}
		due--
		return true
	})
}
