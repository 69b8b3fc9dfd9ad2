package udp

import (
	"sync/atomic"

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
		if h.listener.listen.Takes(client.From.Addr()) {
			return h
		}
	}
	return r
}

// inherit has every receiver of l hand its clients to those of heirs.
func (w *worker) inherit(l *listener, heirs []*listener) {
	r := l.receivers[w.index]
	r.heirs = nil
	for _, h := range heirs {
		if hr := h.receivers[w.index]; hr.fd >= 0 {
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
	s.receiver.listener.sessions.Add(-1)
	r.listener.sessions.Add(1)
	s.receiver, s.to = r, r.destination(s.client)
}

// overlapping returns those of list that a client of l can mean, too.
func (l *listener) overlapping(list []*listener) (some []*listener) {
	for _, o := range list {
		if o != l && l.listen.Overlaps(o.listen) {
			some = append(some, o)
		}
	}
	return some
}

// succeed has the listeners of old, which are configured no more, hand what they have
// to those of present. It returns when all loops do so.
func (s *Server) succeed(old, present []*listener) {
	heirs := make([][]*listener, len(old))
	for i, l := range old {
		heirs[i] = l.overlapping(present)
	}
	s.loops.Do(func(i int, _ *loop.Loop) {
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

// lend opens l, which is not configured yet, at once if another listener has all of
// its addresses: the kernel gives their clients to l already. They stay the other's.
func (s *Server) lend(l *listener) {
	s.mu.Lock()
	var heirs []*listener // those that run first
	for _, o := range s.listeners {
		switch {
		case o.closing || !o.listen.Covers(l.listen):
		case o.retired.Load():
			heirs = append(heirs, o)
		default:
			heirs = append([]*listener{o}, heirs...)
		}
	}
	s.mu.Unlock()
	if len(heirs) == 0 || l.open {
		return
	}
	l.route.Store(heirs[0].route.Load())
	l.open = true
	s.loops.Do(func(i int, _ *loop.Loop) {
		s.workers[i].inherit(l, heirs)
		l.receivers[i].begin()
	})
}

// close closes the sockets of l, which has no sessions, and takes what is in their
// queues. All are withdrawn together: if only one of them went, the kernel would give
// its clients to the others.
func (s *Server) close(l *listener) {
	s.mu.Lock()
	if !s.closed {
		for _, r := range l.receivers {
			if r.fd >= 0 {
				sock.Withdraw(r.fd) // without it, what comes in the last instant is lost
			}
		}
	}
	s.mu.Unlock()
	for range maxTurns {
		var more atomic.Bool
		s.loops.Do(func(i int, _ *loop.Loop) {
			if l.receivers[i].turn() {
				more.Store(true)
			}
		})
		if !more.Load() {
			break
		}
	}
	s.loops.Do(func(i int, _ *loop.Loop) { l.receivers[i].close() })
}

// maxTurns is more than it takes to empty the queue of a socket that gets no more.
const maxTurns = 1000
