package tcp

import (
	"sync/atomic"

	"github.com/poise-lb/poise/l4/service"
)

// Service is the part of a TCP service that outlives its configuration: its
// counters and open connections.
type Service = service.Service[ServiceStats]

// ServiceStats are counters that never fall.
type ServiceStats struct {
	service.Stats
	Accepted atomic.Uint64

	// TLS with clients: handshakes that are under way, that have succeeded, and
	// those among them that resumed a session.
	HandshakesActive    atomic.Int64
	Handshakes, Resumed atomic.Uint64
}
