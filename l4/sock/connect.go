package sock

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Connect starts a TCP connection to dst, from source unless that is the zero
// Addr. A transparent source need not be an address of this host (IP_TRANSPARENT,
// which takes CAP_NET_ADMIN or CAP_NET_RAW). The handshake goes on in the background:
// the descriptor becomes writable when it has ended, and PendingError tells how. An
// error leaves no descriptor behind.
func Connect(dst netip.AddrPort, source netip.Addr, transparent bool) (fd int, err Errno) {
	return connectSocket(unix.SOCK_STREAM, dst, netip.AddrPortFrom(source, 0), transparent)
}

// connectSocket connects a socket from source. Port 0 leaves the port to connect, and the
// zero Addr with it the address.
func connectSocket(kind int, dst, source netip.AddrPort, transparent bool) (fd int, err Errno) {
	var sa unix.RawSockaddrAny
	size, family := encode(&sa, dst)
	fd, err = open(family, kind)
	if err != 0 {
		return -1, err
	}
	if kind == unix.SOCK_STREAM {
		err = setAll(fd, []option{
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			// Urgent data stays in the stream. It is too late when its event has come: a
			// second mark behind it makes the kernel leave out the first byte on arrival.
			{unix.SOL_SOCKET, unix.SO_OOBINLINE, 1},
		})
	}
	if err == 0 && transparent {
		err = setTransparent(fd, family)
	}
	switch {
	case err != 0 || !source.Addr().IsValid():
	case source.Addr().Is4() != (family == unix.AF_INET):
		err = EADDRNOTAVAIL // of the other family
	default:
		err = bindSource(fd, source)
	}
	if err == 0 {
		err = connect(fd, &sa, size)
	}
	if err != 0 {
		Close(fd)
		return -1, err
	}
	return fd, 0
}

// ConnectUnix connects to the stream socket at path. EAGAIN means that the
// listener's queue is full: unlike with TCP nothing goes on in the background,
// and the caller has to try again.
func ConnectUnix(path string) (fd int, err Errno) {
	var sa unix.RawSockaddrUnix
	if len(path) >= len(sa.Path) {
		return -1, unix.ENAMETOOLONG
	}
	sa.Family = unix.AF_UNIX
	for i := range len(path) {
		sa.Path[i] = int8(path[i])
	}
	fd, err = open(unix.AF_UNIX, unix.SOCK_STREAM)
	if err != 0 {
		return -1, err
	}
	size := unsafe.Offsetof(sa.Path) + uintptr(len(path)) + 1
	if err = connect(fd, (*unix.RawSockaddrAny)(unsafe.Pointer(&sa)), size); err != 0 {
		Close(fd)
		return -1, err
	}
	return fd, 0
}

// open opens a socket of the kind, SOCK_STREAM or SOCK_DGRAM.
func open(family, kind int) (int, Errno) {
	fd, _, err := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC), 0)
	return int(fd), err
}

func setTransparent(fd, family int) Errno {
	if family == unix.AF_INET6 {
		return setsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)
	}
	return setsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
}

// MayBeTransparent reports whether this process may connect from addresses that
// are not this host's.
func MayBeTransparent() Errno {
	fd, err := open(unix.AF_INET, unix.SOCK_STREAM)
	if err != 0 {
		return err
	}
	defer Close(fd)
	return setTransparent(fd, unix.AF_INET)
}

// bindSource fixes the source address and leaves a port of 0 to connect: chosen
// there it has to be unique per destination only, chosen by bind it would be
// reserved for all of them (IP_BIND_ADDRESS_NO_PORT, Linux 4.2).
func bindSource(fd int, source netip.AddrPort) Errno {
	if source.Port() == 0 {
		if err := setsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != 0 {
			return err
		}
	}
	var sa unix.RawSockaddrAny
	size, _ := encode(&sa, source)
	_, _, err := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa)), size)
	return err
}

func connect(fd int, sa *unix.RawSockaddrAny, size uintptr) Errno {
	_, _, err := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(sa)), size)
	// An interrupted connect goes on like one in progress.
	if err == unix.EINPROGRESS || err == unix.EINTR {
		return 0
	}
	return err
}
