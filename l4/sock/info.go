package sock

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Delivery is how what was written to a TCP socket fares (TCP_INFO, tcp(7)). The zero
// value says that all of it has arrived.
type Delivery struct {
	Pending bool // some is not acknowledged, or has not been sent yet
	// Retransmits is how often in a row the same bytes have been sent again without an
	// acknowledgement, and Probes how often a closed window, or a quiet peer, was asked
	// without an answer.
	Retransmits, Probes int
	// Heard is when an acknowledgement came last, before now. One that acknowledges
	// nothing new counts: it is what a peer sends that does not read.
	Heard time.Duration
}

// Delivering asks the kernel; the zero value if it does not say.
func Delivering(fd int) Delivery {
	var info unix.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	_, _, err := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if err != 0 {
		return Delivery{}
	}
	return Delivery{
		Pending:     info.Unacked > 0 || info.Notsent_bytes > 0,
		Retransmits: int(info.Retransmits),
		Probes:      int(info.Probes),
		Heard:       time.Duration(info.Last_ack_recv) * time.Millisecond,
	}
}
