package udp

import (
	"net/netip"

	"github.com/poise-lb/poise/l4"
)

// Descriptors, ports and a service's places are few, and whoever floods from invented
// addresses can ask for all of them. So a newcomer that finds none takes the place of
// a session that matters less: the oldest that is there for late replies only, or else
// the oldest that has never got further than an invented client can, one datagram and
// no reply.

// makeRoom ends a session whose descriptor r can have; false if there is none.
func (w *worker) makeRoom(r *receiver) bool {
	s := w.leastOf(r, func(*session) bool { return true })
	if s == nil {
		return false
	}
	s.end(l4.Idle, l4.Proxy)
	return true
}

// makePort ends a session with a port out of p that r can have towards a backend, and
// returns the port; 0 if there is none. A session that waits for that very backend would
// be ended in vain: its port would rest.
func (w *worker) makePort(r *receiver, p *ports, backend netip.AddrPort) uint16 {
	s := w.leastOf(r, func(s *session) bool {
		return s.ports == p && (s.backend() != backend || s.expects() <= 0) && !w.server.rests.has(s.local, backend)
	})
	if s == nil {
		return 0
	}
	port := s.local.Port()
	s.end(l4.Idle, l4.Proxy)
	return port
}

// leastOf returns the useful session that may give way first; nil if none may.
func (w *worker) leastOf(r *receiver, useful func(*session) bool) *session {
	s := w.leaving.expendable(useful)
	if s == nil {
		s = w.unconfirmed(r, useful)
	}
	if s == nil && w.clear(r) {
		return w.leastOf(r, useful)
	}
	return s
}

// makePlace ends a session of the service at whose limit r is.
func (w *worker) makePlace(r *receiver, svc *Service) bool {
	s := w.unconfirmed(r, func(s *session) bool { return s.route.service == svc })
	if s == nil && w.clear(r) {
		return w.makePlace(r, svc)
	}
	if s == nil {
		return false
	}
	s.depart(l4.Idle, l4.Proxy)
	return true
}

// unconfirmed returns a session that may give way: of r, where the flood is likely to
// be, or else of any receiver.
func (w *worker) unconfirmed(r *receiver, useful func(*session) bool) *session {
	if s := r.unconfirmed.expendable(useful); s != nil {
		return s
	}
	for other := range w.receivers {
		if s := other.unconfirmed.expendable(useful); s != nil {
			return s
		}
	}
	return nil
}

// expendable returns the oldest session of the list that is useful and of which
// nothing is in a tray, if it is among the first few.
func (l *sessionList) expendable(useful func(*session) bool) *session {
	s := l.last
	for range 16 {
		if s == nil {
			break
		}
		if useful(s) && !s.underWay() {
			return s
		}
		s = s.links[l.kind].prev
	}
	return nil
}

// clear sends the tray of requests on if sessions that may give way could be waiting
// for that, and reports whether it has. In a flood a single tray can hold the first
// datagrams of all of them.
func (w *worker) clear(r *receiver) bool {
	if len(w.touched) == 0 || r.unconfirmed.last == nil && w.leaving.last == nil {
		return false
	}
	w.forward()
	return true
}

// underWay reports whether datagrams of the session are in a tray, or it is in a list
// of the round.
func (s *session) underWay() bool {
	return s.queue != chain{} || s.waits || s.firstByte != l4.Unreached && s.lastReply == s.worker.loop.Now()
}

// confirm notes that the session is more than one datagram.
func (s *session) confirm() {
	if s.doubtful {
		s.doubtful = false
		s.receiver.unconfirmed.remove(s)
	}
}

// reserve takes a descriptor for a session of r.
func (w *worker) reserve(r *receiver) bool {
	d := w.server.Descriptors
	if d.TakeShare(1) {
		return true
	}
	d.Refresh()
	return d.TakeShare(1) || w.makeRoom(r) && d.TakeShare(1)
}
