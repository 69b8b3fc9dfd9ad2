package udp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
)

// A closer ends a worker's sessions of one backend evenly over some time, so that
// their clients do not all go to the others at once. It keeps no list of them, which
// would have to learn of every one that ends by itself: at each step it counts those
// that are left and ends the part that is due.
type closer struct {
	worker  *worker
	backend *balance.Backend
	outcome l4.Outcome
	before  time.Duration // sessions that began later are left alone
	until   time.Duration
	pace    time.Duration
	timer   loop.Timer
}

// closerPace is the shortest time between two steps of a closer.
const closerPace = 20 * time.Millisecond

// closeBackend ends the sessions of b, late replies apart.
func (w *worker) closeBackend(b *balance.Backend, o l4.Outcome, spread time.Duration, called time.Time) {
	k := &closer{worker: w, backend: b, outcome: o, before: w.loop.Precise() - time.Since(called)}
	k.until = w.loop.Now() + max(spread, 0)
	k.pace = max(spread/100, closerPace)
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
	due := n
	if left := k.until - w.loop.Now(); left > 0 {
		steps := int(left/k.pace) + 1
		due = (n + steps - 1) / steps
		// With fewer sessions than steps the last ones wait.
		w.loop.Start(&k.timer, min(max(k.pace, left/time.Duration(n)), left))
	}
	for s := w.sessions.first; s != nil && due > 0; s = s.links[every].next {
		if k.matches(s) {
			s.retire(k.outcome)
			due--
		}
	}
}

func (k *closer) matches(s *session) bool {
	return s.phase == open && s.lease.Backend() == k.backend && s.start <= k.before
}
