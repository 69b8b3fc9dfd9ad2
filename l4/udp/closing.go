package udp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
)

// A closer ends a worker's sessions of one backend evenly over some time, so that
// their clients do not all go to the others at once.
type closer struct {
	worker  *worker
	backend *balance.Backend
	outcome l4.Outcome
	before  time.Duration // sessions that began later are left alone
	spread  loop.Spread
	timer   loop.Timer
}

// CloseBackend ends the sessions of b, late replies apart. Those whose requests can go
// to another backend go on with that.
func (w *worker) CloseBackend(b *balance.Backend, o l4.Outcome, spread time.Duration, called time.Time) {
	k := &closer{worker: w, backend: b, outcome: o, before: w.loop.Precise() - time.Since(called), spread: loop.SpreadOver(spread, w.loop.Now())}
	k.timer.Owner = k
	k.Expired(&k.timer)
}

// Expired is a step.
func (k *closer) Expired(*loop.Timer) {
	w := k.worker
	n := 0
	for s := w.sessions.first; s != nil; s = s.links[every].next {
		if k.matches(s) {
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
	repeats := 0
	for s := w.sessions.first; s != nil && due > 0 && repeats < repeatsAtOnce; s = s.links[every].next {
		if k.matches(s) {
			if !s.welcome() && s.repeat() {
				repeats++
			} else {
				s.retire(k.outcome, l4.Proxy)
			}
			due--
		}
	}
	if due > 0 && wait == 0 { // no other step would take them
		w.loop.Start(&k.timer, time.Millisecond)
	}
}

func (k *closer) matches(s *session) bool {
	return s.phase == open && s.lease.Backend() == k.backend && s.start <= k.before
}
