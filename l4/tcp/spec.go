package tcp

import (
	"net/netip"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/wire"
)

// Spec is the validated configuration of one TCP service.
type Spec struct {
	Name     string
	Listen   []l4.Listen
	Freebind bool // bind addresses this host does not have (IP_FREEBIND)

	// MaxConnections bounds open client connections; 0 means no limit.
	MaxConnections int

	Connect      time.Duration // one connect attempt, > 0
	ConnectTotal time.Duration // all attempts of one connection together, > 0
	Idle         time.Duration // no byte in either direction; 0 means no limit
	HalfClose    time.Duration // one side has ended, no progress of the other, > 0
	Keepalive    Keepalive
	// Buffer bounds what the kernel holds of a connection in each place, in bytes, when
	// many are blocked: what a client, or a backend, is to be sent and has no window
	// for, and what a backend has sent and was not read; 0 leaves it to the kernel.
	Buffer  int
	Retries int // further backends to try after a failed connect, >= 0

	FirstBytes time.Duration // all a client says before it has a backend: PROXY header, ClientHello, handshake; > 0
	Proxy      ProxyIn
	StartTLS   bool // PostgreSQL: say yes to an SSLRequest, TLS begins after it
	// MaxHandshakes bounds the TLS handshakes with clients that are under way at
	// once, >= 1.
	MaxHandshakes int
}

// Keepalive sets TCP keepalive on both legs of a connection. Idle and Interval
// are whole seconds, at least 1 s; Probes 0 turns keepalive off.
type Keepalive struct {
	Idle, Interval time.Duration
	Probes         int
	// Unanswered is how long a peer may leave bytes that are on the way to it without
	// any answer; 0 = Idle + Probes * Interval, or with Probes 0 for as long as the
	// kernel tries.
	Unanswered time.Duration
}

// seconds returns the settings in the whole seconds that the kernel takes.
func (k Keepalive) seconds() (idle, interval, probes int) {
	return int(max(k.Idle, time.Second) / time.Second), int(max(k.Interval, time.Second) / time.Second), k.Probes
}

// ProxyIn says from whom a PROXY header is expected. Peers that are not trusted
// are taken for clients, and what they send for payload.
type ProxyIn struct {
	Accept  wire.ProxyAccept // 0 = from nobody
	Trusted []netip.Prefix   // masked; whose header is required and believed
}
