package sock

import (
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ListenOptions are settings of a listening socket. Accepted sockets inherit
// no-delay, keepalive and the place of urgent data from it, which saves system calls for every connection.
type ListenOptions struct {
	BindOptions

	// Keepalive of accepted sockets in seconds; KeepaliveProbes 0 turns it off.
	KeepaliveIdle, KeepaliveInterval, KeepaliveProbes int
}

// backlog asks for the most the kernel allows (net.core.somaxconn caps it).
const backlog = 65535

// Bind opens a TCP socket bound to addr that does not listen yet. Where the
// kernel has no IPv6, the dual-stack wildcard is that of IPv4. Errors are
// *os.SyscallError around an Errno.
func Bind(addr netip.AddrPort, o ListenOptions) (fd int, err error) {
	return bindSocket(unix.SOCK_STREAM, addr, o.BindOptions, o.set)
}

func (o ListenOptions) set(fd, _ int) Errno {
	err := setAll(fd, []option{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_OOBINLINE, 1}, // urgent data stays in the stream
	})
	if err != 0 {
		return err
	}
	return o.setKeepalive(fd)
}

func (o ListenOptions) setKeepalive(fd int) Errno {
	if o.KeepaliveProbes == 0 {
		return setsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	}
	return SetKeepalive(fd, o.KeepaliveIdle, o.KeepaliveInterval, o.KeepaliveProbes)
}

// SetInherited changes, on a socket that is listening already, what sockets
// accepted from now on inherit.
func (o ListenOptions) SetInherited(fd int) Errno { return o.setKeepalive(fd) }

// Listen starts taking connections on a bound socket.
func Listen(fd int) error {
	return os.NewSyscallError("listen", unix.Listen(fd, backlog))
}

// Accept takes one connection from the queue of a listening socket. The new
// descriptor is non-blocking and close-on-exec.
func Accept(fd int) (conn int, peer netip.AddrPort, err Errno) {
	var sa unix.RawSockaddrAny
	for {
		size := uint32(unsafe.Sizeof(sa))
		n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&sa)),
			uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		if errno == 0 {
			return int(n), decode(&sa), 0
		}
		if errno != unix.EINTR {
			return -1, netip.AddrPort{}, errno
		}
	}
}

// RefuseNew makes a listening socket drop SYNs while handshakes that are under
// way still complete, so that its accept queue can be emptied and the socket
// closed without resetting anybody. A client that comes too late hears nothing,
// repeats its SYN a second later and is then answered by the next listener, or
// refused. The filter is classic BPF: "drop if SYN and not ACK".
func RefuseNew(fd int) Errno {
	const flagsOffset, syn, ack = 13, 0x02, 0x10 // TCP header, RFC 9293 section 3.1
	program := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flagsOffset},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: syn},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return setsockopt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, unsafe.Pointer(&prog), unsafe.Sizeof(prog))
}
