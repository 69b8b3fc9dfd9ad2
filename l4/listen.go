package l4

import "net/netip"

// Listen is one address a service accepts on. It is comparable and identifies
// its listener through reloads.
type Listen struct {
	Addr   netip.AddrPort
	V6Only bool // false on [::] takes IPv4 clients too (dual stack)
}

// String returns the address as configured, "[::]:5432".
func (l Listen) String() string { return l.Addr.String() }
