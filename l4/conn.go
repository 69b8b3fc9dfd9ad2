package l4

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Conn is one open client connection, or UDP session, at one moment.
type Conn struct {
	Service, Pool, Backend    string // Backend is "" while none is chosen
	Flow                      Flow
	Peer                      netip.AddrPort // the proxy that stated the client's address; the zero value without one
	State                     string         // greeting | queued | connecting | open | closing
	Age                       time.Duration  // since it was accepted, or its first datagram
	Idle                      time.Duration  // since bytes moved last; 0 before a backend has answered the connect
	BytesIn, BytesOut         uint64         // from the client, to the client
	DatagramsIn, DatagramsOut uint64         // of UDP
}

// Of reports whether c is of the pool and of the backend; "" is any.
func (c *Conn) Of(pool, backend string) bool {
	return (pool == "" || pool == c.Pool) && (backend == "" || backend == c.Backend)
}

// Oldest sorts list, the oldest first, and returns at most limit of it.
func Oldest(list []Conn, limit int) []Conn {
	slices.SortStableFunc(list, func(a, b Conn) int { return cmp.Compare(b.Age, a.Age) })
	return list[:min(limit, len(list))]
}
