package sock

import "net/netip"

// MeetsItself reports whether a socket that Connect or ConnectUDP has connected to dst
// is its own peer. The kernel makes such a connection when dst is an address of this
// host, nothing listens there, and the port that it chooses for the socket happens to
// be dst's: TCP opens it simultaneously from both ends (RFC 9293 section 3.5), which are
// the same, and UDP delivers to itself. What is sent comes back as the answer, and the
// port is taken for the program that should listen there. Such a socket must not be
// used: close it (Reset, of TCP), and take dst for one that refuses.
//
// It holds as soon as the socket is connected, and of TCP from Connect on: both ends are
// fixed before the handshake. The kernel is asked (getsockname, 0.3 to 1 µs) only if the
// port of dst is one that the kernel chooses; a backend on a usual port costs no call. A
// range of ports that has been made wider counts from the next time that LocalPorts is
// called, which start and every reload do.
func MeetsItself(fd int, dst netip.AddrPort) bool {
	if port := uint32(dst.Port()); port < everFirst.Load() || port > everLast.Load() {
		return false
	}
	return IsSame(LocalAddr(fd), dst)
}

// IsSame reports whether local, as LocalAddr returns it, and dst are the same address and
// port. LocalAddr knows no zones: of a link-local dst the zone does not count.
func IsSame(local, dst netip.AddrPort) bool {
	return local == netip.AddrPortFrom(dst.Addr().Unmap().WithZone(""), dst.Port())
}

// IsOwn reports whether a is an address of this host: the kernel would send from it what
// is sent to it. It takes a local port for a moment, and is false where there is none.
func IsOwn(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	fd, err := ConnectUDP(netip.AddrPortFrom(a, 9), netip.Addr{}, false) // nothing is sent
	if err != 0 {
		return false
	}
	defer Close(fd)
	return LocalAddr(fd).Addr() == a.WithZone("")
}

// IsShared reports whether a is a group's or a broadcast address: what is sent there
// every socket gets that could. The kernel lets only those connect to a broadcast address
// that say they mean to.
func IsShared(a netip.Addr) bool {
	if a.IsUnspecified() || a.IsMulticast() {
		return a.IsMulticast()
	}
	fd, err := ConnectUDP(netip.AddrPortFrom(a, 9), netip.Addr{}, false)
	if err == 0 {
		Close(fd)
	}
	return err == EACCES
}
