package udp

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/poise-lb/poise/l4"
)

// Conn is one session at one moment.
type Conn struct {
	Service, Pool, Backend    string
	Flow                      l4.Flow
	State                     string        // open | closing
	Age                       time.Duration // since its first datagram
	Idle                      time.Duration // since the last datagram in either direction
	BytesIn, BytesOut         uint64        // from the client, to the client
	DatagramsIn, DatagramsOut uint64
}

var phaseNames = [...]string{closed: "closing", open: "open", leaving: "closing"}

// Conns returns at most limit sessions, the oldest first: those of a pool, of a
// backend, or of any if the name is "". Each loop looks at its sessions from the
// oldest on until it has enough, which stops its traffic for as long; one that does
// not do so within a second is left out.
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
	for s := w.sessions.last; s != nil && len(list) < limit; s = s.links[every].prev {
		c := Conn{
			Service: s.route.service.Name, Pool: s.route.Pool.Name(), Backend: s.lease.Backend().Name(),
			Flow: s.flow, State: phaseNames[s.phase], Age: now - s.start, Idle: now - s.last,
			BytesIn: s.in.bytes, BytesOut: s.out.bytes, DatagramsIn: s.in.datagrams, DatagramsOut: s.out.datagrams,
		}
		if pool != "" && c.Pool != pool || backend != "" && c.Backend != backend {
			continue
		}
		list = append(list, c)
	}
	return list
}
