package udp

import "github.com/poise-lb/poise/l4"

var phaseNames = [...]string{closed: "closing", open: "open", leaving: "closing"}

// Oldest is part of service.Worker.
func (w *worker) Oldest(limit int, pool, backend string) (list []l4.Conn) {
	now := w.loop.Now()
	for s := w.sessions.last; s != nil && len(list) < limit; s = s.links[every].prev {
		c := l4.Conn{
			Service: s.route.service.Name, Pool: s.route.Pool.Name(), Backend: s.lease.Backend().Name(),
			Flow: s.flow, State: phaseNames[s.phase], Age: now - s.start, Idle: now - s.last,
			BytesIn: s.in.bytes, BytesOut: s.out.bytes, DatagramsIn: s.in.datagrams, DatagramsOut: s.out.datagrams,
		}
		if c.Of(pool, backend) {
			list = append(list, c)
		}
	}
	return list
}
