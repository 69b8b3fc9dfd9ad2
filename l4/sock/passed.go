package sock

import (
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// A Passed socket was opened and bound by another process, which may keep it: then it
// lives on when it is closed here, and what is set on it stays.
type Passed struct {
	FD     int
	Stream bool // TCP; else UDP
	Addr   netip.AddrPort
	V6Only bool // [::] takes no IPv4 clients
}

// Receive takes a socket that was passed as fd, which stays the caller's. It fails if
// that is not bound, or no socket of TCP or UDP.
func Receive(fd int) (Passed, error) {
	domain, errno := getsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if errno != 0 {
		return Passed{}, errno
	}
	protocol, errno := getsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if errno != 0 {
		return Passed{}, errno
	}
	p := Passed{Stream: protocol == unix.IPPROTO_TCP, Addr: LocalAddr(fd)}
	if domain != unix.AF_INET && domain != unix.AF_INET6 || !p.Stream && protocol != unix.IPPROTO_UDP {
		return Passed{}, errors.New("it is no socket of TCP or UDP")
	}
	if p.Addr.Port() == 0 {
		return Passed{}, errors.New("the socket is not bound")
	}
	if domain == unix.AF_INET6 {
		v6only, errno := getsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		if errno != 0 {
			return Passed{}, errno
		}
		p.V6Only = v6only != 0
	}
	var err error
	if p.FD, err = Duplicate(fd); err != nil {
		return Passed{}, err
	}
	if err := unix.SetNonblock(p.FD, true); err != nil {
		Close(p.FD)
		return Passed{}, os.NewSyscallError("fcntl", err)
	}
	return p, nil
}

// Duplicate returns another descriptor of the same socket.
func Duplicate(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	return n, os.NewSyscallError("fcntl", err)
}

// Apply sets what Bind does on a socket that is bound already.
func (o ListenOptions) Apply(fd int) error { return apply(fd, o.set) }

// Apply sets what BindUDP does on a socket that is bound already.
func (o UDPOptions) Apply(fd int) error { return apply(fd, o.set) }

func apply(fd int, set func(fd, family int) Errno) error {
	family, errno := getsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if errno == 0 {
		errno = set(fd, family)
	}
	if errno != 0 {
		return os.NewSyscallError("setsockopt", errno)
	}
	return nil
}
