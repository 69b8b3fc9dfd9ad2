package udp

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
)

// A sender that forges its address can claim to be one of our own sockets, or a
// backend. The reply to such a datagram comes back as the next one, and a single packet
// would go round for ever. So a new client is not taken for one if its address and port
// are a listener's or a session's of this process, whichever the service, or one of its
// pool's backends. Linux drops what comes from outside with an address of this host over
// IPv4, but not over IPv6.

// goesRound reports whether a reply to the client of f would come back to this process.
func (w *worker) goesRound(f l4.Flow, route *route) bool {
	s := w.server
	for _, l := range s.At(f.Client.Port()) {
		if isAt(l, f.Client.Addr()) || covers(l, f.Client.Addr()) && (f.Client.Addr() == f.VIP.Addr() || w.addresses.own(f.Client.Addr(), w.loop.Now())) {
			return true
		}
	}
	return s.sockets.forged(f.Client, f.VIP) || route.Pool.Has(f.Client)
}

// isAt reports whether the listener is at this address only.
func isAt(l *listener, a netip.Addr) bool { return l.Listen.Addr.Addr().WithZone("") == a }

// covers reports whether the listener is at every address of this host that is of a's
// version.
func covers(l *listener, a netip.Addr) bool {
	return l.Listen.Addr.Addr().IsUnspecified() && l.Listen.Takes(a)
}

// sockets are those that sessions and sprayers of all loops have towards backends. It is
// a table of fixed size without locks: a socket is in one of the few places that follow
// the one its address leads to. If those are taken, far beyond what one host has ports
// for, it is not told from a client.
type sockets struct {
	seed  uint64
	place [1 << 18]atomic.Uint64 // of one socket: who it is, and in lowBits its peer
}

const (
	lowBits     = 1<<24 - 1
	socketsSpan = 16 // places, two lines of cache
)

func newSockets() *sockets { return &sockets{seed: rand.Uint64()} }

func (t *sockets) hash(a netip.AddrPort) uint64 { return l4.HashAddr(a.Addr(), a.Port(), t.seed) }

// word is what stands for a socket; it is not 0.
func (t *sockets) word(local, peer netip.AddrPort) uint64 {
	return t.hash(local)&^lowBits | t.hash(peer)&lowBits | 1
}

func (t *sockets) places(local netip.AddrPort) []atomic.Uint64 {
	first := t.hash(local) * 0x9e3779b97f4a7c15 >> 40 % uint64(len(t.place)) &^ (socketsSpan - 1)
	return t.place[first : first+socketsSpan]
}

func (t *sockets) add(local, peer netip.AddrPort) {
	places, word := t.places(local), t.word(local, peer)
	for i := range places {
		if places[i].Load() == 0 && places[i].CompareAndSwap(0, word) {
			return
		}
	}
}

func (t *sockets) remove(local, peer netip.AddrPort) {
	places, word := t.places(local), t.word(local, peer)
	for i := range places {
		if places[i].CompareAndSwap(word, 0) {
			return
		}
	}
}

// forged reports whether from is one of the sockets, with another peer than to: one whose
// peer is to is a service that has another as its backend, which is fine.
func (t *sockets) forged(from, to netip.AddrPort) bool {
	places, word := t.places(from), t.word(from, to)
	found := false
	for i := range places {
		switch w := places[i].Load(); {
		case w == word:
			return false
		case w&^lowBits == word&^lowBits:
			found = true
		}
	}
	return found
}

// has reports whether there is such a socket.
func (t *sockets) has(local, peer netip.AddrPort) bool {
	places, word := t.places(local), t.word(local, peer)
	for i := range places {
		if places[i].Load() == word {
			return true
		}
	}
	return false
}

// addresses remembers for a second which of the addresses it was asked about are this
// host's. The kernel is asked otherwise, which takes some microseconds, and only about
// sources with the port of a listener for all addresses.
type addresses [256]struct {
	addr  netip.Addr
	is    bool
	until time.Duration
}

func (c *addresses) own(a netip.Addr, now time.Duration) bool {
	e := &c[l4.HashAddr(a, 0, 0)%uint64(len(c))]
	if e.addr != a || now >= e.until {
		e.addr, e.is, e.until = a, sock.IsOwn(a), now+time.Second
	}
	return e.is
}
