package tcp

import (
	"net/netip"
	"time"
)

// Spec is the validated configuration of one TCP service.
type Spec struct {
	Name     string
	Listen   []Listen
	Freebind bool // bind addresses this host does not have (IP_FREEBIND)

	// MaxConnections bounds open client connections; 0 means no limit.
	MaxConnections int

	Connect      time.Duration // one connect attempt, > 0
	ConnectTotal time.Duration // all attempts of one connection together, > 0
	Idle         time.Duration // no byte in either direction; 0 means no limit
	HalfClose    time.Duration // one side has ended, no progress of the other, > 0
	Keepalive    Keepalive
	Retries      int // further backends to try after a failed connect, >= 0
}

// Listen is one address a service accepts on. It is comparable and identifies
// its listener through reloads.
type Listen struct {
	Addr   netip.AddrPort
	V6Only bool // false on [::] takes IPv4 clients too (dual stack)
}

// String returns the address as configured, "[::]:5432".
func (l Listen) String() string { return l.Addr.String() }

// Keepalive sets TCP keepalive on both legs of a connection. Idle and Interval
// are whole seconds, at least 1 s; Probes 0 turns keepalive off.
type Keepalive struct {
	Idle, Interval time.Duration
	Probes         int
}
