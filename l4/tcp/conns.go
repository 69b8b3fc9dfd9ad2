package tcp

import "github.com/poise-lb/poise/l4"

var phaseNames = [...]string{
	closed: "closing", greeting: "greeting", securing: "greeting",
	connecting: "connecting", waiting: "connecting", asking: "connecting", verifying: "connecting",
	queued: "queued", relaying: "open", resetting: "closing",
}

// Oldest is part of service.Worker.
func (w *worker) Oldest(limit int, pool, backend string) (list []l4.Conn) {
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
