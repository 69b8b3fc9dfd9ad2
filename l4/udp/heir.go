package udp

import (
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A reload can put a wildcard address in the place of one of its addresses, or the
// other way round. For as long as both are open the kernel gives a client to the more
// specific one, whichever is configured. So what comes to a socket of the wrong one is
// treated as if it had come to its heir: the same worker's socket of the listener that
// has the client's address now. Since sessions are found by worker and port, and a
// client's worker stays the same (sock.Steer), they go on.

// heirOf returns whose client it is.
func (r *receiver) heirOf(client sock.Destination) *receiver {
	for _, h := range r.heirs {
		if h.listener.Listen.Takes(client.From.Addr()) {
			return h
		}
	}
	return r
}

// inherit has every receiver of l hand its clients to those of heirs.
func (w *worker) inherit(l *listener, heirs []*listener) {
	r := l.Sockets[w.index]
	r.heirs = nil
	for _, h := range heirs {
		if hr := h.Sockets[w.index]; hr.fd >= 0 {
			r.heirs = append(r.heirs, hr)
		}
	}
}

// handOver gives sessions to the heirs of their receivers, so that replies leave by
// sockets that stay.
func (w *worker) handOver() {
	for s := w.sessions.last; s != nil; s = s.links[every].prev {
		if r := s.receiver; len(r.heirs) > 0 {
			s.moveTo(r.heirOf(s.client))
		}
	}
}

// moveTo makes r the session's receiver.
func (s *session) moveTo(r *receiver) {
	if r == s.receiver {
		return
	}
	if s.doubtful {
		s.receiver.unconfirmed.remove(s)
		r.unconfirmed.push(s)
	}
	s.receiver.listener.Leave()
	r.listener.Use()
	s.receiver, s.to = r, r.destination(s.client)
}

// succeed has the listeners of old, which are configured no more, hand what they have
// to those of present. It returns when all loops do so.
func (s *Server) succeed(old, present []*listener) {
	heirs := make([][]*listener, len(old))
	for i, l := range old {
		heirs[i] = l.Overlapping(present)
	}
	s.Loops.Do(func(i int, _ *loop.Loop) {
		w := s.workers[i]
		for _, l := range present {
			w.inherit(l, nil)
		}
		for i, l := range old {
			w.inherit(l, heirs[i])
		}
		w.handOver()
	})
}

// lend has l take what comes to it for heirs, whose clients the kernel gives to it
// already: all of its addresses are theirs.
func (s *Server) lend(l *listener, heirs []*listener) {
	s.Loops.Do(func(i int, _ *loop.Loop) {
		s.workers[i].inherit(l, heirs)
		l.Sockets[i].Begin()
	})
}
