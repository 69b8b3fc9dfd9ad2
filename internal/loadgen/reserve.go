package loadgen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A Reservation keeps a port for the process: its socket is bound and takes
// nothing. Nobody else is given the port as an ephemeral one, who connects or
// sends to it is refused, and a server that sets SO_REUSEADDR (every Go listener
// does) can come and go on it. Without it a stopped backend on an ephemeral port
// may find the port taken when it returns, or a probe may connect to itself.
type Reservation struct {
	addr netip.AddrPort
	fd   int
	once sync.Once
}

// Reserve binds addr, an IP address and a TCP port; port 0 chooses a free one. The
// caller must Close the reservation.
func Reserve(addr string) (*Reservation, error) {
	return reserve(addr, unix.SOCK_STREAM, func(fd int, want netip.AddrPort) (netip.AddrPort, error) {
		// With port 0 the kernel still chooses one that no socket at all is bound
		// to: sharing by SO_REUSEADDR is for ports asked for by number.
		if err := reuseAddr(fd); err != nil {
			return netip.AddrPort{}, err
		}
		return bind(fd, want)
	})
}

// reserveUDP is Reserve for a UDP port. The socket is connected to itself: it
// receives from nobody else, so that a datagram for a stopped server finds no
// socket and is refused (ICMP), and does not wait in this one.
func reserveUDP(addr string) (*Reservation, error) {
	return reserve(addr, unix.SOCK_DGRAM, func(fd int, want netip.AddrPort) (netip.AddrPort, error) {
		at, err := bind(fd, want)
		if err == nil {
			err = unix.Connect(fd, sockaddr(at))
		}
		// Only now: two sockets that have this option when they bind to port 0 may
		// be given the same one. The server's socket, which has it, too, can then
		// come and go.
		if err == nil {
			err = reuseAddr(fd)
		}
		return at, err
	})
}

// reserve makes a socket of a type and has take bind it, which returns the real
// address.
func reserve(addr string, typ int, take func(fd int, want netip.AddrPort) (netip.AddrPort, error)) (*Reservation, error) {
	want, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("reserve %s: want an IP address and a port: %w", addr, err)
	}
	family := unix.AF_INET6
	if want.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve %s: %w", addr, os.NewSyscallError("socket", err))
	}
	at, err := take(fd, want)
	if err != nil {
		return nil, fmt.Errorf("reserve %s: %w", addr, errors.Join(err, unix.Close(fd)))
	}
	return &Reservation{addr: at, fd: fd}, nil
}

// Addr is the reserved address with its real port.
func (r *Reservation) Addr() netip.AddrPort { return r.addr }

// Close gives the port back. It may be called more than once.
func (r *Reservation) Close() {
	r.once.Do(func() { _ = unix.Close(r.fd) })
}

// reuseAddr lets a socket share a port asked for by number.
func reuseAddr(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
}

// bind returns want with its real port.
func bind(fd int, want netip.AddrPort) (netip.AddrPort, error) {
	if err := unix.Bind(fd, sockaddr(want)); err != nil {
		return netip.AddrPort{}, err
	}
	bound, err := localAddr(fd)
	return netip.AddrPortFrom(want.Addr(), bound.Port()), err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if ifi, err := net.InterfaceByName(a.Addr().Zone()); err == nil {
		sa.ZoneId = uint32(ifi.Index)
	}
	return sa
}

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("getsockname: unexpected %T", sa)
}
