package main

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// bufferBytes is what the tool's own sockets may queue, so that it is never the
// tool that loses a datagram.
const bufferBytes = 32 << 20

// bindUDP returns a socket bound to an address. Several share one: the kernel
// deals out the senders. With trains it receives them.
func bindUDP(at netip.AddrPort, trains bool) (fd int, err error) {
	fd, err = udpSocket(at, trains)
	if err == nil {
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err == nil {
			err = unix.Bind(fd, sockaddr(at))
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("UDP socket on %s: %w", at, err)
	}
	return fd, nil
}

// connectUDP returns a socket connected to an address, from a port of its own.
func connectUDP(to netip.AddrPort, trains bool) (fd int, err error) {
	fd, err = udpSocket(to, trains)
	if err == nil {
		if err = unix.Connect(fd, sockaddr(to)); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("UDP socket to %s: %w", to, err)
	}
	return fd, nil
}

func udpSocket(of netip.AddrPort, trains bool) (fd int, err error) {
	fd, err = unix.Socket(family(of), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for _, option := range []struct{ force, plain int }{
		{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF},
	} {
		// Without the privilege it is the most that the system allows.
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.force, bufferBytes) != nil && err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.plain, bufferBytes)
		}
	}
	if err == nil && trains {
		err = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// boundTo returns a socket's own address.
func boundTo(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockname: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("getsockname: unexpected %T", sa)
}

func family(a netip.AddrPort) int {
	if a.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
