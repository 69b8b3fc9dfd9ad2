package sock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Outbox gathers datagrams for one socket and sends them with few system calls
// (sendmmsg). Datagrams of one size that follow each other to one destination leave
// as one message that the kernel, or the network card, cuts up (UDP_SEGMENT): the
// way through the network stack is most of what a datagram costs. Payloads are not
// copied; they must stay as they are until they are sent.
type Outbox struct {
	headers  []mmsghdr
	vectors  []unix.Iovec
	control  []control
	peers    []Peer
	messages []message
	used     int // vectors
	next     int // the first message that is not sent yet
}

// A message is what is sent as a unit.
type message struct {
	segment int  // size of its datagrams, the last one excepted
	size    int  // bytes of payload
	count   int  // datagrams
	open    bool // another datagram of the segment's size can join
}

// The limits of what may be sent at once as a train.
const (
	maxSegments  = 64          // UDP_MAX_SEGMENTS of kernels before 6.9; newer ones allow 128
	maxTrainSize = MaxDatagram // the whole train has to fit one IPv4 packet, though none is made of it
)

// NewOutbox makes an outbox for n messages, n at least 1.
func NewOutbox(n int) *Outbox {
	return &Outbox{
		headers:  make([]mmsghdr, n),
		vectors:  make([]unix.Iovec, vectorsPerMessage*n),
		control:  make([]control, n),
		peers:    make([]Peer, n),
		messages: make([]message, 0, n),
	}
}

// vectorsPerMessage is how many parts the messages have on average, at most: a header
// and a payload, or a few datagrams that have joined.
const vectorsPerMessage = 4

// A Destination is where a datagram goes, and from where.
type Destination struct {
	Peer Peer  // the zero Peer: a connected socket's
	From Local // the zero Local: as the socket is bound
}

// Add appends a message to a destination, or the parts of one that begins with a
// header. A segment above 0 says that payload is a train. The outbox must not be full.
func (o *Outbox) Add(to *Destination, header, payload []byte, segment int) {
	i := len(o.messages)
	o.messages = o.messages[:i+1]
	m := &o.messages[i]
	*m = message{segment: segment, size: len(payload), count: 1}
	if segment > 0 && len(payload) > segment {
		m.count = (len(payload) + segment - 1) / segment
	} else {
		m.segment = len(payload)
	}
	m.open = len(header) == 0 && len(payload) > 0 && len(payload) == m.count*m.segment
	h := &o.headers[i].header
	h.Iov = &o.vectors[o.used]
	h.SetIovlen(0)
	h.Name, h.Namelen = nil, 0
	if to.Peer != (Peer{}) {
		o.peers[i] = to.Peer
		h.Name, h.Namelen = &o.peers[i].raw[0], to.Peer.size()
	}
	b := appendLocal(o.control[i].bytes()[:0], to.Peer.family(), to.From)
	h.Control = &o.control[i].bytes()[0]
	h.SetControllen(len(b))
	if len(header) > 0 {
		o.vector(h, header)
	}
	o.vector(h, payload)
	if m.count > 1 {
		o.cut(i)
	}
}

// Join adds a datagram or a train to the message added last, which goes to the same
// destination, and reports whether it could.
func (o *Outbox) Join(payload []byte, segment int) bool {
	i := len(o.messages) - 1
	if i < 0 {
		return false
	}
	m := &o.messages[i]
	count, unit := 1, len(payload)
	if segment > 0 && len(payload) > segment {
		count, unit = (len(payload)+segment-1)/segment, segment
	}
	switch {
	case !m.open, o.used == len(o.vectors), unit == 0, unit > m.segment, count > 1 && unit != m.segment,
		m.count+count > maxSegments, m.size+len(payload) > maxTrainSize:
		return false
	}
	o.vector(&o.headers[i].header, payload)
	first := m.count == 1
	m.size += len(payload)
	m.count += count
	m.open = len(payload) == count*m.segment // a shorter one is the last
	if first {
		o.cut(i)
	}
	return true
}

func (o *Outbox) vector(h *unix.Msghdr, b []byte) {
	v := &o.vectors[o.used]
	v.Base = unsafe.SliceData(b)
	v.SetLen(len(b))
	o.used++
	h.SetIovlen(int(h.Iovlen) + 1)
}

// cut has the kernel cut message i up.
func (o *Outbox) cut(i int) {
	h := &o.headers[i].header
	b := appendSegment(o.control[i].bytes()[:h.Controllen], o.messages[i].segment)
	h.SetControllen(len(b))
}

// Full reports whether it has to be sent before anything is added.
func (o *Outbox) Full() bool {
	return len(o.messages) == cap(o.messages) || o.used+2 > len(o.vectors)
}

// Empty reports whether everything is sent or dropped; then there is room again.
func (o *Outbox) Empty() bool { return len(o.messages) == 0 }

// Send sends until all is sent, or a message fails. That one is the next to be sent
// again: an error may well be another's, which the kernel has kept for the next call.
// Drop gives it up. It returns the index of the message, in the order of Add.
func (o *Outbox) Send(fd int) (failed int, err Errno) {
	for o.next < len(o.messages) {
		left := len(o.messages) - o.next
		n, _, err := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&o.headers[o.next])), uintptr(left), unix.MSG_NOSIGNAL, 0, 0)
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			return o.next, err
		}
		o.next += int(n)
	}
	o.reset()
	return -1, 0
}

func (o *Outbox) reset() {
	// What has been sent is nobody's business any more, the collector's least.
	o.messages, o.used, o.next = o.messages[:0], 0, 0
}

// Failed tells what the message that failed is made of, its header apart.
func (o *Outbox) Failed() (datagrams, bytes int) {
	m := &o.messages[o.next]
	return m.count, m.size
}

// Drop gives up the message that failed.
func (o *Outbox) Drop() {
	if o.next++; o.next == len(o.messages) {
		o.reset()
	}
}

// Split sends the datagrams of the message that failed one by one, and tells of each
// that the kernel did not take, why and of how many bytes. The message is done with
// then.
func (o *Outbox) Split(fd int, lost func(why Errno, bytes int)) {
	m, h := &o.messages[o.next], &o.headers[o.next].header
	var own control
	one := *h
	var v unix.Iovec
	one.Iov = &v
	one.SetIovlen(1)
	one.Control = &own.bytes()[0]
	own = o.control[o.next]
	one.SetControllen(int(h.Controllen) - unix.CmsgSpace(2)) // UDP_SEGMENT is the last
	for _, part := range unsafe.Slice(h.Iov, h.Iovlen) {
		whole := unsafe.Slice(part.Base, part.Len)
		for len(whole) > 0 {
			n := min(m.segment, len(whole))
			v.Base = &whole[0]
			v.SetLen(n)
			if err := sendOne(fd, &one); err != 0 {
				lost(err, n)
			}
			whole = whole[n:]
		}
	}
	o.Drop()
}

// sendOne sends a message, a second time if it fails at first: the error may be
// that of an earlier one.
func sendOne(fd int, h *unix.Msghdr) (err Errno) {
	for range 2 {
		_, _, err = unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), unix.MSG_NOSIGNAL)
		if err == 0 || err == EAGAIN {
			break
		}
	}
	return err
}
