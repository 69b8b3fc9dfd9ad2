package main

import (
	"encoding/binary"
	"errors"
	"iter"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many datagrams one system call carries. A tool that made one
// call for each would be slower than a proxy that does not.
const batchSize = 64

// maxDatagram is the largest payload of UDP over IPv4.
const maxDatagram = 65507

// mmsghdr is struct mmsghdr of recvmmsg(2), for which x/sys has no wrapper.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32 // bytes received or sent
}

// controlSize is room for one control message with an int or less in it.
var controlSize = unix.CmsgSpace(4)

// batch is memory for batchSize datagrams to receive or to send. With trains it
// takes datagrams that the kernel has joined (UDP_GRO) and hands over those of
// one size and one peer joined (UDP_SEGMENT): see udp(7).
type batch struct {
	headers [batchSize]mmsghdr
	vectors [batchSize]unix.Iovec
	bufs    [batchSize][]byte
	names   []unix.RawSockaddrAny // of peers; nil on connected sockets
	control [batchSize][]byte     // nil without trains
}

// newBatch returns a batch for datagrams, or trains of them, of size bytes in
// all at most.
func newBatch(size int, named, trains bool) *batch {
	b := &batch{}
	memory := make([]byte, batchSize*size)
	if named {
		b.names = make([]unix.RawSockaddrAny, batchSize)
	}
	for i := range b.headers {
		b.bufs[i] = memory[i*size : (i+1)*size]
		b.vectors[i].Base = &b.bufs[i][0]
		if trains {
			b.control[i] = make([]byte, controlSize)
		}
	}
	return b
}

// header makes header i carry the vectors from to from+n, to or from the peer
// that name number from is for.
func (b *batch) header(i, from, n int) {
	h := &b.headers[i].hdr
	*h = unix.Msghdr{Iov: &b.vectors[from]}
	h.SetIovlen(n)
	if b.names != nil {
		h.Name = (*byte)(unsafe.Pointer(&b.names[from]))
		h.Namelen = unix.SizeofSockaddrAny
	}
}

// receive returns how many datagrams or trains came. They stay until the next
// call.
func (b *batch) receive(fd, flags int) (int, error) {
	for i := range b.headers {
		b.vectors[i].SetLen(len(b.bufs[i]))
		b.header(i, i, 1)
		if c := b.control[i]; c != nil {
			b.headers[i].hdr.Control = &c[0]
			b.headers[i].hdr.SetControllen(len(c))
		}
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.headers[0])), batchSize, uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// segment returns the size of the datagrams that received entry i consists of.
func (b *batch) segment(i int) int {
	if c := b.control[i]; c != nil && b.headers[i].hdr.Controllen > 0 {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO {
			return int(int32(binary.NativeEndian.Uint32(c[unix.CmsgLen(0):])))
		}
	}
	return int(b.headers[i].n)
}

// datagrams are those that the first n received entries consist of.
func (b *batch) datagrams(n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range n {
			all, size := b.bufs[i][:b.headers[i].n], max(b.segment(i), 1)
			for ok := true; ok; ok = len(all) > 0 { // an empty one is one, too
				part := all[:min(size, len(all))]
				if !yield(part) {
					return
				}
				all = all[len(part):]
			}
		}
	}
}

// send sends the first n datagrams of size bytes each to the peer of a
// connected socket, and returns how many the kernel took.
func (b *batch) send(fd, n, size int) (int, error) {
	for i := range n {
		b.vectors[i].SetLen(size)
	}
	if b.control[0] == nil {
		for i := range n {
			b.header(i, i, 1)
		}
		return b.write(fd, 0, n)
	}
	n = min(n, trainLength(size))
	b.header(0, 0, n)
	b.join(0, size)
	sent, err := b.write(fd, 0, 1)
	return sent * n, err
}

// echo sends the first n received entries back to where they came from. It stops
// at nothing: what cannot be sent is lost, as on a network.
func (b *batch) echo(fd, n int) {
	var sizes [batchSize]int
	for i := range n {
		sizes[i] = b.segment(i) // before the control memory is used for sending
		b.vectors[i].SetLen(int(b.headers[i].n))
	}
	count := 0
	for from := 0; from < n; count++ {
		size, length := sizes[from], int(b.headers[from].n)
		next := from + 1
		if b.control[0] != nil && size > 0 {
			limit := trainLength(size) * size
			for next < n {
				more := int(b.headers[next].n)
				if sizes[next] != size || length%size != 0 || more%size != 0 || length+more > limit || b.names[next] != b.names[from] {
					break
				}
				length += more
				next++
			}
		}
		b.header(count, from, next-from)
		if size > 0 && length > size {
			b.join(count, size)
		}
		from = next
	}
	for from := 0; from < count; {
		sent, err := b.write(fd, from, count)
		if err != nil && !errors.Is(err, unix.EINTR) {
			sent++ // the first of the rest is what failed
		}
		from += sent
	}
}

// trainLength is how many datagrams of a size the kernel takes joined: it has
// to fit one datagram of IP, and older kernels end at 64 (UDP_MAX_SEGMENTS).
func trainLength(size int) int { return max(1, min(64, maxDatagram/size)) }

// join makes header i a train of datagrams of size bytes.
func (b *batch) join(i, size int) {
	c := b.control[i]
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(c[unix.CmsgLen(0):], uint16(size))
	b.headers[i].hdr.Control = &c[0]
	b.headers[i].hdr.SetControllen(unix.CmsgSpace(2))
}

// write sends the headers from to n.
func (b *batch) write(fd, from, n int) (int, error) {
	sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.headers[from])), uintptr(n-from), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}
