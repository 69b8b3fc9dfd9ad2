package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/service"
)

// CloseBackend ends the connections to b; those that are still being made go to
// another backend at once.
func (w *worker) CloseBackend(b *balance.Backend, o l4.Outcome, over, before time.Duration) {
	w.closeAll(o, func(c *conn) bool {
		switch {
		case c.lease.Backend() != b:
		case c.phase >= relaying:
			return over <= 0 && c.start <= before
		case c.attempt <= before:
			c.abandon()
			c.connect()
		}
		return false
	})
	if over > 0 {
		service.EndEvenly(w.loop, over, &closing{w, b, o, before})
	}
}

// A closing is a worker's connections to a backend, but for those accepted later than
// before.
type closing struct {
	worker  *worker
	backend *balance.Backend
	outcome l4.Outcome
	before  time.Duration
}

func (k *closing) matches(c *conn) bool {
	return c.lease.Backend() == k.backend && c.start <= k.before
}

// Count is part of service.Clients.
func (k *closing) Count() (n int) {
	for c := k.worker.conns.first; c != nil; c = c.next {
		if k.matches(c) {
			n++
		}
	}
	return n
}

// End is part of service.Clients.
func (k *closing) End(n int) int {
	k.worker.closeAll(k.outcome, func(c *conn) bool {
		if n == 0 || !k.matches(c) {
			return false
		}
		n--
		return true
	})
	return 0
}
