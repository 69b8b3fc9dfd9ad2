package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
)

// A closer closes a worker's connections to one backend evenly over some time, so
// that their clients do not all come back at once.
type closer struct {
	worker  *worker
	backend *balance.Backend
	outcome l4.Outcome
	before  time.Duration // connections accepted later are left alone
	spread  loop.Spread
	timer   loop.Timer
}

// CloseBackend ends the connections to b; those that are still being made go to
// another backend at once.
func (w *worker) CloseBackend(b *balance.Backend, o l4.Outcome, spread time.Duration, called time.Time) {
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
	k := &closer{worker: w, backend: b, outcome: o, before: before, spread: loop.SpreadOver(spread, w.loop.Now())}
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
	due, wait := k.spread.Step(n, w.loop.Now())
	if wait > 0 {
		w.loop.Start(&k.timer, wait)
	}
	w.closeAll(k.outcome, func(c *conn) bool {
		if due == 0 || !matches(c) {
			return false
		}
		due--
		return true
	})
}
