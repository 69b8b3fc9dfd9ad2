package tcp

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/poise-lb/poise/l4"
)

// Conn is one open client connection at one moment.
type Conn struct {
	Service, Pool, Backend string // Backend is "" while none is chosen
	Flow                   l4.Flow
	Peer                   netip.AddrPort // the proxy that stated the client's address; the zero value without one
	State                  string         // greeting | queued | connecting | open | closing
	Age                    time.Duration  // since it was accepted
	Idle                   time.Duration  // since bytes moved last; 0 before a backend has answered the connect
	BytesIn, BytesOut      uint64         // from the client, to the client
}

var phaseNames = [...]string{
	closed: "closing", greeting: "greeting", securing: "greeting",
	connecting: "connecting", waiting: "connecting", asking: "connecting", verifying: "connecting",
	queued: "queued", relaying: "open", resetting: "closing",
}

// Conns returns at most limit open connections, the oldest first: those of a
// pool, of a backend, or of any if the name is "". Each loop looks at its
// connections from the oldest on until it has enough, which stops its traffic for
// as long; one that does not do so within a second is left out.
func (s *Server) Conns(limit int, pool, backend string) []Conn {
	var mu sync.Mutex
	var all []Conn
	s.wait(time.Second, func(w *worker) {
		some := w.oldest(limit, pool, backend)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
	})
	mu.Lock()
	defer mu.Unlock()
	list := slices.Clone(all) // a loop that is late may still append
	slices.SortStableFunc(list, func(a, b Conn) int { return cmp.Compare(b.Age, a.Age) })
	return list[:min(limit, len(list))]
}

// oldest describes the worker's part of Server.Conns.
func (w *worker) oldest(limit int, pool, backend string) (list []Conn) {
	now := w.loop.Now()
	for c := w.conns.last; c != nil && len(list) < limit; c = c.prev {
		d := Conn{
			Service: c.route.service.Name, Pool: c.poolName(), Flow: c.flow, State: phaseNames[c.phase],
			Age: now - c.start, BytesIn: c.client.moved, BytesOut: c.backend.moved,
		}
		if b := c.lease.Backend(); b != nil {
			d.Backend = b.Name()
		}
		if c.front != nil {
			d.Peer = c.front.peer
		}
		if pool != "" && d.Pool != pool || backend != "" && d.Backend != backend {
			continue
		}
		if c.connecting != l4.Unreached {
			d.Idle = now - c.last
		}
		list = append(list, d)
	}
	return list
}
