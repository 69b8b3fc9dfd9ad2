package sock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxDatagram is the largest payload of a UDP datagram over IPv4 (RFC 768, RFC 791:
// 65535 less 20 and 8 bytes of headers).
const MaxDatagram = 65507

// An Inbox is memory that datagrams are received into, many with one system call
// (recvmmsg). A slot holds one datagram, or a train of them that the kernel has
// joined (UDP_GRO); its content is valid until the slot is received into again.
type Inbox struct {
	memory  []byte
	headers []mmsghdr
	vectors []unix.Iovec
	peers   []Peer // nil: of connected sockets only
	control []control
}

// The kernel's struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	size   uint32 // bytes received or sent
}

const (
	// slotSize holds the largest datagram there is, over IPv6 without jumbograms, and
	// the largest train: 65535 less headers, both.
	slotSize = 64 << 10
	// slotStride is more than slotSize by a few cache lines, or the beginnings of
	// all slots would compete for the same few lines of every cache.
	slotStride = slotSize + 5*64
)

// NewInbox makes an inbox of n slots. With peers it learns who sent each datagram;
// connected sockets need not be told.
func NewInbox(n int, peers bool) *Inbox {
	in := &Inbox{
		memory:  make([]byte, n*slotStride),
		headers: make([]mmsghdr, n),
		vectors: make([]unix.Iovec, n),
		control: make([]control, n),
	}
	if peers {
		in.peers = make([]Peer, n)
	}
	for i := range n {
		in.vectors[i].Base = &in.memory[i*slotStride]
		in.vectors[i].SetLen(slotSize)
		h := &in.headers[i].header
		h.Iov = &in.vectors[i]
		h.SetIovlen(1)
		h.Control = &in.control[i].bytes()[0]
		if peers {
			h.Name = &in.peers[i].raw[0]
		}
	}
	return in
}

// Len returns the number of slots.
func (in *Inbox) Len() int { return len(in.headers) }

// Receive fills slots from the first one given on, up to but not including the
// last, and returns how many. Less than that were there means that the socket is
// empty. An error that is waiting, of an earlier datagram that was sent, is
// returned alone, and is gone then.
func (in *Inbox) Receive(fd, first, last int) (n int, err Errno) {
	for i := first; i < last; i++ {
		h := &in.headers[i].header
		h.SetControllen(controlSize)
		if in.peers != nil {
			h.Namelen = unix.SizeofSockaddrInet6
		}
	}
	for {
		n, _, err := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.headers[first])), uintptr(last-first), 0, 0, 0)
		if err == 0 {
			return int(n), 0
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// Payload returns what was received into slot i.
func (in *Inbox) Payload(i int) []byte {
	return in.memory[i*slotStride : i*slotStride+int(in.headers[i].size)]
}

// Whole reports whether all of it was received.
func (in *Inbox) Whole(i int) bool { return in.headers[i].header.Flags&unix.MSG_TRUNC == 0 }

// Peer returns who sent it.
func (in *Inbox) Peer(i int) (p Peer) {
	if from := &in.peers[i]; from.family() == unix.AF_INET {
		copy(p.raw[:], from.raw[:unix.SizeofSockaddrInet4]) // behind it are another's leftovers
	} else {
		p = *from
	}
	return p
}

// Details returns where it came to, if the socket tells (UDPOptions.LocalAddr), and
// the size of the datagrams if it is a train, of which the last may be shorter. A shared
// datagram was sent to a broadcast address or a group: every socket that could has got
// it, also of those that share an address.
func (in *Inbox) Details(i int) (local Local, segment int, shared bool) {
	n := int(in.headers[i].header.Controllen)
	if n == 0 {
		return Local{}, 0, false
	}
	return parseControl(in.control[i].bytes()[:n])
}
