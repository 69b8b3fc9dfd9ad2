package udp

import (
	"net/netip"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// RanDry reports whether the kernel has had no port at a source address.
func (s *Server) RanDry(source netip.Addr) bool { return s.ports[source].dry.Load() != 0 }

// Receive has the first loop take one piece of what waits for a listener, and returns
// how many datagrams that were, and whether there may be more.
func (s *Server) Receive(l l4.Listen, before func()) (n uint64, more bool) {
	var r *receiver
	for _, ln := range s.At(l.Addr.Port()) {
		if ln.Listen == l {
			r = ln.Sockets[0]
		}
	}
	st := &r.listener.Route().service.Stats
	s.Loops[:1].Do(func(int, *loop.Loop) {
		before()
		w := r.worker
		w.FlushCounts()
		n = st.DatagramsIn.Load()
		if more = r.receive(); more {
			w.loop.Again(r.fd, sock.Readable)
		}
		w.FlushCounts()
		n = st.DatagramsIn.Load() - n
	})
	return n, more
}

// Kept returns how many requests the first loop has room for.
func (s *Server) Kept() (n int) {
	s.Loops[:1].Do(func(int, *loop.Loop) { n = s.workers[0].made })
	return n
}

// BeginClosing has the first loop begin to close what it has of a backend, and returns
// what count says after its first turn.
func (s *Server) BeginClosing(b *balance.Backend, o l4.Outcome, count func() uint64) (n uint64) {
	s.Loops[:1].Do(func(_ int, l *loop.Loop) {
		s.workers[0].CloseBackend(b, o, 0, l.Precise())
		n = count()
	})
	return n
}
