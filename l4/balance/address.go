package balance

import "net/netip"

// Address is where a backend listens: an IP address and port, or the absolute
// path of a unix stream socket if Unix is set. It is comparable.
type Address struct {
	netip.AddrPort
	Unix string
}

// String returns "10.0.0.1:5432", "[2001:db8::1]:5432" or "unix:/path".
func (a Address) String() string {
	if a.Unix != "" {
		return "unix:" + a.Unix
	}
	return a.AddrPort.String()
}

// Network returns the address family in the vocabulary of net.Dialer: "tcp" or
// "unix".
func (a Address) Network() string {
	if a.Unix != "" {
		return "unix"
	}
	return "tcp"
}

// Dial returns the address as net.Dialer takes it: "10.0.0.1:5432" or "/path".
func (a Address) Dial() string {
	if a.Unix != "" {
		return a.Unix
	}
	return a.AddrPort.String()
}

// IsValid reports whether the address is set at all.
func (a Address) IsValid() bool { return a.Unix != "" || a.AddrPort.IsValid() }

// MarshalText returns String. It is here because the embedded AddrPort's own
// would encode a unix socket as nothing.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
