// Package sock is the non-blocking socket calls of the data path, and its only
// importer of x/sys/unix. Every call on a non-blocking descriptor is a raw
// system call: the Go scheduler is not told, so nothing is handed over to
// another thread and back for a call that cannot block. A descriptor is a plain
// int owned by the caller, who closes it exactly once.
//
// Calls return a syscall.Errno rather than an error so that the hot path
// allocates nothing; 0 means success. EINTR is retried here.
package sock

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Errno is the result of a call; 0 means success.
type Errno = syscall.Errno

// The results that callers tell apart.
const (
	EAGAIN        = unix.EAGAIN
	EINPROGRESS   = unix.EINPROGRESS
	EMFILE        = unix.EMFILE
	ENFILE        = unix.ENFILE
	ENOBUFS       = unix.ENOBUFS
	ENOMEM        = unix.ENOMEM
	ENOSPC        = unix.ENOSPC
	EADDRNOTAVAIL = unix.EADDRNOTAVAIL
	EADDRINUSE    = unix.EADDRINUSE
	ECONNREFUSED  = unix.ECONNREFUSED
	ECONNRESET    = unix.ECONNRESET
	ECONNABORTED  = unix.ECONNABORTED
	EPIPE         = unix.EPIPE
	ETIMEDOUT     = unix.ETIMEDOUT
	ENOENT        = unix.ENOENT
	EACCES        = unix.EACCES
	EPERM         = unix.EPERM
	EINVAL        = unix.EINVAL
	EMSGSIZE      = unix.EMSGSIZE
	EIO           = unix.EIO
	EPROTO        = unix.EPROTO
)

// Read fills b from a socket. n 0 without an error is the end of the stream.
// recvfrom and sendto get to the socket by a shorter way than read and write,
// which go through the file system's layer: a few per cent of a small message.
func Read(fd int, b []byte) (n int, err Errno) {
	return transfer(unix.SYS_RECVFROM, fd, b, 0)
}

// Write sends b to a socket and returns how much the kernel took. A stream
// socket whose peer is gone returns EPIPE, without a signal.
func Write(fd int, b []byte) (n int, err Errno) {
	return transfer(unix.SYS_SENDTO, fd, b, unix.MSG_NOSIGNAL)
}

func transfer(call uintptr, fd int, b []byte, flags uintptr) (int, Errno) {
	for {
		n, _, err := unix.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
		if err == 0 {
			return int(n), 0
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// Close gives the descriptor back. A TCP socket with unread bytes is reset by
// the kernel, any other ends with a FIN.
func Close(fd int) {
	// Linux frees the descriptor even on EINTR: a retry could close another's.
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

// Reset closes a TCP socket with a reset, discarding what is unsent. Other
// sockets are simply closed.
func Reset(fd int) {
	linger := unix.Linger{Onoff: 1}
	setsockopt(fd, unix.SOL_SOCKET, unix.SO_LINGER, unsafe.Pointer(&linger), unsafe.Sizeof(linger))
	Close(fd)
}

// Vanish closes a TCP socket so that the peer is not told. Sockets in repair mode are
// closed in silence, which takes CAP_NET_ADMIN; without it the reset is given a time
// to live of one hop, and reaches nobody who is further away. What the peer sends
// after that the kernel answers with a reset, as it does for sockets that never were.
func Vanish(fd int) {
	if setsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) == 0 {
		Close(fd)
		return
	}
	setsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, 1)
	setsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
	Reset(fd)
}

// MayVanish reports whether this process may close a socket in silence; see Vanish.
func MayVanish() Errno {
	fd, err := open(unix.AF_INET, unix.SOCK_STREAM)
	if err != 0 {
		return err
	}
	defer Close(fd)
	return setsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
}

// Acknowledge sends the acknowledgement that is due now, and not when there is something
// to send with it or 40 ms have passed (TCP_QUICKACK, tcp(7)). An even value makes the
// kernel go back to delaying the next ones.
func Acknowledge(fd int) { setsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 2) }

// CloseWrite ends the writing direction with a FIN.
func CloseWrite(fd int) Errno {
	_, _, err := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return err
}

// PendingError returns and clears the socket's pending error: the result of a
// connect, or what a reset left behind.
func PendingError(fd int) Errno {
	v, err := getsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != 0 {
		return err
	}
	return Errno(v)
}

// Unacked returns how many bytes written to the socket the peer's kernel has
// not acknowledged yet (SIOCOUTQ, tcp(7)).
func Unacked(fd int) int {
	var v int32
	_, _, err := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&v)))
	if err != 0 {
		return 0
	}
	return int(v)
}

// Unread returns how many received bytes wait to be read (SIOCINQ, tcp(7)); they
// are still there after the peer has reset the connection.
func Unread(fd int) int {
	var v int32
	_, _, err := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&v)))
	if err != 0 {
		return 0
	}
	return int(v)
}

// SetKeepalive turns TCP keepalive on; idle and interval are in seconds.
func SetKeepalive(fd, idle, interval, probes int) Errno {
	for _, o := range [...][3]int{
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, interval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	} {
		if err := setsockoptInt(fd, o[0], o[1], o[2]); err != 0 {
			return err
		}
	}
	return 0
}

// LocalAddr returns the address a socket is bound to, unmapped; the zero
// AddrPort if the kernel does not say.
func LocalAddr(fd int) netip.AddrPort {
	var sa unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(sa))
	_, _, err := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	if err != 0 {
		return netip.AddrPort{}
	}
	return decode(&sa)
}

func setsockoptInt(fd, level, name, value int) Errno {
	v := int32(value)
	return setsockopt(fd, level, name, unsafe.Pointer(&v), unsafe.Sizeof(v))
}

func setsockopt(fd, level, name int, p unsafe.Pointer, size uintptr) Errno {
	_, _, err := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(p), size, 0)
	return err
}

func getsockoptInt(fd, level, name int) (int, Errno) {
	var v int32
	size := uint32(unsafe.Sizeof(v))
	_, _, err := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	return int(v), err
}

// encode writes a into sa and returns its length and family.
func encode(sa *unix.RawSockaddrAny, a netip.AddrPort) (size uintptr, family int) {
	port := a.Port()<<8 | a.Port()>>8
	if a.Addr().Is4() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		*in = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port, Addr: a.Addr().As4()}
		return unsafe.Sizeof(*in), unix.AF_INET
	}
	in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
	*in = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: port, Addr: a.Addr().As16(), Scope_id: scope(a.Addr().Zone())}
	return unsafe.Sizeof(*in), unix.AF_INET6
}

// decode returns the address in sa, with IPv4-mapped addresses unmapped. The
// zone of a link-local peer is dropped: nothing downstream compares it.
func decode(sa *unix.RawSockaddrAny) netip.AddrPort {
	switch sa.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), in.Port<<8|in.Port>>8)
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom16(in.Addr).Unmap(), in.Port<<8|in.Port>>8)
	}
	return netip.AddrPort{}
}

// scope turns the zone of a link-local address, a name or a number, into an
// interface index.
func scope(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0 // bind and connect answer EINVAL, which names the address
	}
	return uint32(ifi.Index)
}
