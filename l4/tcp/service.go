package tcp

import (
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/notice"
)

// Service is the part of a TCP service that outlives its configuration: its
// counters and open connections.
type Service struct {
	Name  string // set once
	Stats ServiceStats

	active  l4.Places
	leaving atomic.Bool // removed from the configuration
	noticed [numNoticeKinds]notice.Gate
}

// ServiceStats are counters that never fall.
type ServiceStats struct {
	Accepted          atomic.Uint64
	BytesIn, BytesOut atomic.Uint64 // from clients, to clients; see Server.Flush
	Retries           atomic.Uint64 // further backends tried
	Outcomes          [l4.NumOutcomes]atomic.Uint64
	Duration          l4.Histogram // of connections that reached a backend

	// TLS with clients: handshakes that are under way, that have succeeded, and
	// those among them that resumed a session.
	HandshakesActive    atomic.Int64
	Handshakes, Resumed atomic.Uint64
}

// Active returns the number of open connections. It never exceeds the
// configured limit, not even for a moment.
func (s *Service) Active() int64 { return s.active.Taken() }

// Leaving reports whether the service is configured no longer.
func (s *Service) Leaving() bool { return s.leaving.Load() }

// keepalive returns the settings in the whole seconds that the kernel takes.
func (k Keepalive) seconds() (idle, interval, probes int) {
	return int(max(k.Idle, time.Second) / time.Second), int(max(k.Interval, time.Second) / time.Second), k.Probes
}
