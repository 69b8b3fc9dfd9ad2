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

// Takes reports whether a is one of the addresses that l is, the port apart. Of a
// wildcard address it says whether l has that IP version.
func (l Listen) Takes(a netip.Addr) bool {
	switch own := l.Addr.Addr(); {
	case !own.IsUnspecified():
		return own == a
	case own.Is4():
		return a.Is4()
	default:
		return a.Is6() || !l.V6Only
	}
}

// Overlaps reports whether a client can mean both: the kernel gives it to the more
// specific one.
func (l Listen) Overlaps(o Listen) bool {
	return l.Addr.Port() == o.Addr.Port() && (l.Takes(o.Addr.Addr()) || o.Takes(l.Addr.Addr()))
}

// Covers reports whether l takes whatever o takes.
func (l Listen) Covers(o Listen) bool {
	dual := o.Addr.Addr() == netip.IPv6Unspecified() && !o.V6Only
	return l.Addr.Port() == o.Addr.Port() && l.Takes(o.Addr.Addr()) && (!dual || !l.V6Only)
}
