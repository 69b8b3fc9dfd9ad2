package udp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
)

var phaseNames = [...]string{closed: "closing", open: "open", leaving: "closing"}

// Conns returns at most limit sessions, the oldest first: those of a pool, of a
// backend, or of any if the name is "". Each loop looks at its sessions from the
// oldest on until it has enough, which stops its traffic for as long; one that does
// not do so within a second is left out.
func (s *Server) Conns(limit int, pool, backend string) []l4.Conn {
	return l4.Oldest(loop.Gather(s.Loops, time.Second, func(i int) []l4.Conn {
		return s.workers[i].oldest(limit, pool, backend)
	}), limit)
}

// oldest describes the worker's part of Server.Conns.
func (w *worker) oldest(limit int, pool, backend string) (list []l4.Conn) {
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
