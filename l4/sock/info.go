package sock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Retransmits returns how often in a row a TCP socket has sent the same bytes
// again without an acknowledgement (tcpi_retransmits of TCP_INFO, tcp(7)); 0 for
// one that has nothing unacknowledged, and if the kernel does not say.
func Retransmits(fd int) int {
	var info unix.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	_, _, err := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if err != 0 {
		return 0
	}
	return int(info.Retransmits)
}
