package loadgen

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// reserveUDP keeps a UDP port for the process, as Reserve does a TCP port, until
// the descriptor is closed. The socket is connected to itself: it receives
// from nobody else, so that a datagram for a stopped server finds no socket and
// is refused (ICMP), and does not wait in this one.
func reserveUDP(addr string) (at netip.AddrPort, fd int, err error) {
	want, err := netip.ParseAddrPort(addr)
	if err != nil {
		return at, -1, fmt.Errorf("reserve %s: want an IP address and a port: %w", addr, err)
	}
	family := unix.AF_INET6
	if want.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return at, -1, fmt.Errorf("reserve %s: %w", addr, os.NewSyscallError("socket", err))
	}
	if err = unix.Bind(fd, sockaddr(want)); err == nil {
		at, err = localAddr(fd)
	}
	if err == nil {
		at = netip.AddrPortFrom(want.Addr(), at.Port())
		err = unix.Connect(fd, sockaddr(at))
	}
	// Only now: two sockets that have this option when they bind to port 0 may be
	// given the same one. The server's socket, which has it, too, can then come
	// and go.
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err != nil {
		return at, -1, fmt.Errorf("reserve %s: %w", addr, errors.Join(err, unix.Close(fd)))
	}
	return at, fd, nil
}
