package udp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/service"
)

// CloseBackend ends the sessions of b, late replies apart. Those whose requests can go
// to another backend go on with that.
func (w *worker) CloseBackend(b *balance.Backend, o l4.Outcome, over, before time.Duration) {
	service.EndEvenly(w.loop, over, &closing{w, b, o, before})
}

// A closing is a worker's sessions of a backend, but for those that began later than
// before.
type closing struct {
	worker  *worker
	backend *balance.Backend
	outcome l4.Outcome
	before  time.Duration
}

func (k *closing) matches(s *session) bool {
	return s.phase == open && s.lease.Backend() == k.backend && s.start <= k.before
}

// Count is part of service.Clients.
func (k *closing) Count() (n int) {
	for s := k.worker.sessions.first; s != nil; s = s.links[every].next {
		if k.matches(s) {
			n++
		}
	}
	return n
}

// End is part of service.Clients. What would be more repeats than a turn takes is put
// off.
func (k *closing) End(n int) (left int) {
	repeats := 0
	for s := k.worker.sessions.first; s != nil && n > 0 && repeats < repeatsAtOnce; s = s.links[every].next {
		if k.matches(s) {
			if !s.welcome() && s.repeat() {
				repeats++
			} else {
				s.depart(k.outcome, l4.Proxy)
			}
			n--
		}
	}
	return n
}
