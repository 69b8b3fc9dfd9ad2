package udp

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
)

// A reply finds its client by the port that it comes to, and by nothing else. So a port
// whose session has ended while the backend may still reply rests: it is not used
// towards that backend until replies can no longer come. Towards other backends it can
// be used, for a connected socket takes datagrams of its peer only.
//
// There is no time after which UDP cannot deliver, so the bound is the service's own: a
// reply comes within udp.idle after the client's datagram, for that is how long its
// session waits for one, but slowReply at most, and lateReplies later it has arrived.

const (
	// slowReply is how long a backend may take to reply where udp.idle is longer, which
	// says how long sessions may pause. It is twice what resolvers and RADIUS clients
	// wait for an answer (resolv.conf(5), RFC 5080 section 2.2.1).
	slowReply = 10 * time.Second
	// lateReplies is how long the socket of a session that has ended stays open at
	// least, if replies may be under way: they still reach the client.
	lateReplies = 2 * time.Second
	// scarcity is how long a backend's new sessions look for no port when each that the
	// kernel has offered was one that rests.
	scarcity = 50 * time.Millisecond
)

// rests says which ports rest: until when, for each local address and port and each
// backend, of all loops. It is a table without chains, and bounded: where two fall on
// the same place both rest until the later of their times, so a port may rest needlessly,
// at worst as many of a hundred as the table is full, and none is used too early.
type rests struct {
	seed  uint64
	until [1 << 19]atomic.Int64 // since started
}

func newRests() *rests { return &rests{seed: rand.Uint64()} }

func (r *rests) place(local, backend netip.AddrPort) *atomic.Int64 {
	h := l4.HashAddr(local.Addr(), local.Port(), r.seed)
	h = l4.HashAddr(backend.Addr(), backend.Port(), h)
	return &r.until[h%uint64(len(r.until))]
}

// add has a port rest towards a backend for so long.
func (r *rests) add(local, backend netip.AddrPort, d time.Duration) {
	if d <= 0 {
		return
	}
	p, until := r.place(local, backend), int64(time.Since(started)+d)
	for {
		old := p.Load()
		if old >= until || p.CompareAndSwap(old, until) {
			return
		}
	}
}

// has reports whether a port rests towards a backend.
func (r *rests) has(local, backend netip.AddrPort) bool {
	until := r.place(local, backend).Load()
	return until != 0 && int64(time.Since(started)) < until
}

// Rests reports whether a reply to a session may still come from a backend to a local
// address and port that it has no socket at any more. Any goroutine may call it.
func (s *Server) Rests(local, backend netip.AddrPort) bool {
	r := s.restsNow()
	return r != nil && r.has(local, backend)
}

// Rest keeps a port from the sessions with a backend until it can no longer reply to a
// question that was asked from there now, by a check. Any goroutine may call it.
func (s *Server) Rest(local, backend netip.AddrPort) {
	if r := s.restsNow(); r != nil { // else there are no sessions
		r.add(local, backend, slowReply+lateReplies)
	}
}

func (s *Server) restsNow() *rests {
	s.equipping.Lock()
	defer s.equipping.Unlock()
	return s.rests
}

// The zero AddrPort stands for all ports.

// noteScarcity has all ports rest towards a backend for a moment: the search for one that
// does not would take long.
func (r *rests) noteScarcity(backend netip.AddrPort) {
	r.add(netip.AddrPort{}, backend, scarcity)
}

func (r *rests) scarce(backend netip.AddrPort) bool { return r.has(netip.AddrPort{}, backend) }

// owed reports whether the backend may still reply to what the client has sent.
func (s *session) owed() bool { return s.asks || s.route.Spec.Replies > 0 && !s.isDone() }

// expects returns for how long replies may still come, from now; 0 or less if they
// cannot. It is meant for sessions that have ended, or would.
func (s *session) expects() time.Duration {
	spec := &s.route.Spec
	until := s.last
	switch {
	case s.owed():
		until = max(until+min(spec.Idle, slowReply), s.left)
	case spec.Replies > 0:
		return 0 // all have come
	}
	// Where nothing is owed the backend may still have been in the middle of what it
	// had to say.
	return until + lateReplies - s.worker.loop.Now()
}
