package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
)

var phaseNames = [...]string{
	closed: "closing", greeting: "greeting", securing: "greeting",
	connecting: "connecting", waiting: "connecting", asking: "connecting", verifying: "connecting",
	queued: "queued", relaying: "open", resetting: "closing",
}

// Conns returns at most limit open connections, the oldest first: those of a
// pool, of a backend, or of any if the name is "". Each loop looks at its
// connections from the oldest on until it has enough, which stops its traffic for
// as long; one that does not do so within a second is left out.
func (s *Server) Conns(limit int, pool, backend string) []l4.Conn {
	return l4.Oldest(loop.Gather(s.Loops, time.Second, func(i int) []l4.Conn {
		return s.workers[i].oldest(limit, pool, backend)
	}), limit)
}

// oldest describes the worker's part of Server.Conns.
func (w *worker) oldest(limit int, pool, backend string) (list []l4.Conn) {
	now := w.loop.Now()
	for c := w.conns.last; c != nil && len(list) < limit; c = c.prev {
		d := l4.Conn{
			Service: c.route.service.Name, Pool: c.poolName(), Flow: c.flow, State: phaseNames[c.phase],
			Age: now - c.start, BytesIn: c.client.moved, BytesOut: c.backend.moved,
		}
		if b := c.lease.Backend(); b != nil {
			d.Backend = b.Name()
		}
		if c.front != nil {
			d.Peer = c.front.peer
		}
		if !d.Of(pool, backend) {
			continue
		}
		if c.connecting != l4.Unreached {
			d.Idle = now - c.last
		}
		list = append(list, d)
	}
	return list
}
