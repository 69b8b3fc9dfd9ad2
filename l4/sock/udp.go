package sock

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// UDPOptions are settings of a socket that takes datagrams from anybody.
type UDPOptions struct {
	BindOptions

	// LocalAddr has every datagram tell which of this host's addresses it came to:
	// a socket bound to a wildcard address cannot know otherwise (IP_PKTINFO).
	LocalAddr bool
	// Buffer is how many bytes of kernel memory may wait in each direction; 0 is
	// the system's default. Without CAP_NET_ADMIN net.core.rmem_max and wmem_max
	// cap it. A datagram costs its size and several hundred bytes.
	Buffer int
}

// BindUDP opens a UDP socket bound to addr, which takes datagrams at once. Where
// the kernel has no IPv6, the dual-stack wildcard is that of IPv4. Errors are
// *os.SyscallError around an Errno. SO_REUSEADDR is never set: on a UDP socket it lets
// another process take the same address, and with it the clients.
func BindUDP(addr netip.AddrPort, o UDPOptions) (fd int, err error) {
	return bindSocket(unix.SOCK_DGRAM, addr, o.BindOptions, o.set)
}

func (o UDPOptions) set(fd, family int) Errno {
	var options []option
	if o.LocalAddr && family == unix.AF_INET6 {
		options = append(options, option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1})
	}
	if o.LocalAddr && (family == unix.AF_INET || !o.V6Only) {
		// An IPv6 socket tells of IPv4 datagrams too, but of a broadcast only where it
		// was sent to, which nothing can be sent from.
		options = append(options, option{unix.IPPROTO_IP, unix.IP_PKTINFO, 1})
	}
	if err := setAll(fd, options); err != 0 {
		return err
	}
	if o.Buffer > 0 {
		SetUDPBuffer(fd, o.Buffer)
	}
	SetGRO(fd)
	return 0
}

// SetUDPBuffer changes UDPOptions.Buffer. It comes as near to it as the system
// allows, and has no error for that reason.
func SetUDPBuffer(fd, size int) {
	for _, o := range [...][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if setsockoptInt(fd, unix.SOL_SOCKET, o[0], size) != 0 {
			setsockoptInt(fd, unix.SOL_SOCKET, o[1], size)
		}
	}
}

// SetGRO lets the kernel hand over datagrams of one sender that follow each other
// closely as one train (UDP_GRO, Linux 5.0). Where it cannot, they come one by one.
func SetGRO(fd int) { setsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) }

// Overflowed returns how many datagrams a UDP socket has lost since it was opened
// because its buffer was full, or their checksum wrong (SO_MEMINFO, Linux 4.12); it
// wraps around.
func Overflowed(fd int) uint32 {
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, err := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if err != 0 {
		return 0
	}
	return info[unix.SK_MEMINFO_DROPS]
}

// ConnectUDP opens a UDP socket that exchanges datagrams with dst only, from source
// unless that is the zero Addr; see Connect for transparent ones. What came to its
// port in the moment before it was connected has been dropped. EAGAIN means that
// there is no free local port. An error leaves no descriptor behind.
func ConnectUDP(dst netip.AddrPort, source netip.Addr, transparent bool) (fd int, err Errno) {
	return connectUDP(dst, netip.AddrPortFrom(source, 0), transparent)
}

// ConnectUDPFrom is ConnectUDP from a port of this host that the caller chooses. The zero
// Addr leaves the address to the system.
func ConnectUDPFrom(dst netip.AddrPort, source netip.Addr, port uint16) (fd int, err Errno) {
	if !source.IsValid() {
		source = netip.IPv6Unspecified()
		if dst.Addr().Is4() {
			source = netip.IPv4Unspecified()
		}
	}
	return connectUDP(dst, netip.AddrPortFrom(source, port), false)
}

func connectUDP(dst, source netip.AddrPort, transparent bool) (fd int, err Errno) {
	if fd, err = connectSocket(unix.SOCK_DGRAM, dst, source, transparent); err != 0 {
		return -1, err
	}
	// connect first takes a port and then limits it to one peer.
	var none [1]byte
	for range maxStrays {
		if _, err := Read(fd, none[:]); err == EAGAIN {
			break
		}
	}
	return fd, 0
}

// maxStrays bounds what can have come in that moment.
const maxStrays = 64

// Deaf has a socket drop whatever it is sent: for one-way traffic, so that nobody
// has to read what nobody expects. It still learns of ICMP errors. The filter is
// classic BPF: "keep 0 bytes".
func Deaf(fd int) Errno {
	program := [...]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return setsockopt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, unsafe.Pointer(&prog), unsafe.Sizeof(prog))
}
