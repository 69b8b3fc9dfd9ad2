package sock

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Peer is who sent a datagram, as the kernel writes it: a sockaddr_in followed
// by zeros, or a sockaddr_in6 with its scope. It is comparable; for one socket
// equal peers are the same address and port.
type Peer struct {
	raw [unix.SizeofSockaddrInet6]byte
}

// AddrPort returns the peer's address, unmapped and without a zone.
func (p Peer) AddrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(p.raw[2:])
	switch p.family() {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(p.raw[4:8])), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(p.raw[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}

func (p *Peer) family() uint16 { return binary.NativeEndian.Uint16(p.raw[:]) }

func (p *Peer) size() uint32 {
	if p.family() == unix.AF_INET {
		return unix.SizeofSockaddrInet4
	}
	return unix.SizeofSockaddrInet6
}

// Mapped returns the peer as a socket of both IP versions writes it, which is the same
// for every socket.
func (p Peer) Mapped() Peer {
	if p.family() != unix.AF_INET {
		return p
	}
	var m Peer
	binary.NativeEndian.PutUint16(m.raw[:], unix.AF_INET6)
	copy(m.raw[2:4], p.raw[2:4])
	m.raw[18], m.raw[19] = 0xff, 0xff
	copy(m.raw[20:24], p.raw[4:8])
	return m
}

// Unmapped undoes Mapped: the peer as a socket of IPv4 writes it.
func (p Peer) Unmapped() Peer {
	var u Peer
	binary.NativeEndian.PutUint16(u.raw[:], unix.AF_INET)
	copy(u.raw[2:4], p.raw[2:4])
	copy(u.raw[4:8], p.raw[20:24])
	return u
}

// A Local is the one of this host's addresses that a datagram came to. It is
// comparable; the zero Local is unknown.
type Local struct {
	addr  [16]byte // of IPv4: mapped
	index uint32   // the interface, of a link-local address; else 0
}

// LocalOf returns an address that needs no interface to be told from others.
func LocalOf(a netip.Addr) Local { return Local{addr: a.As16()} }

// Addr returns the address, unmapped and without a zone; the zero Addr if it is
// unknown.
func (l Local) Addr() netip.Addr {
	if l == (Local{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(l.addr).Unmap()
}

// controlSize has room for what a datagram may tell besides its payload: where it
// came to, in the words of IPv6 and of IPv4, and the size of the datagrams in a train.
const controlSize = 12 * 8

// A control is ancillary data, aligned as the kernel wants it (cmsg(3)).
type control [controlSize / 8]uint64

func (c *control) bytes() *[controlSize]byte { return (*[controlSize]byte)(unsafe.Pointer(c)) }

// parseControl reads the ancillary data of a received datagram. segment is 0 if it
// is no train; shared says that it was sent to a broadcast address or a group. What is
// unknown, or does not fit, is passed over.
func parseControl(b []byte) (local Local, segment int, shared bool) {
	for len(b) >= unix.SizeofCmsghdr {
		var h unix.Cmsghdr
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&h)), unix.SizeofCmsghdr), b)
		if uint64(h.Len) < unix.SizeofCmsghdr || uint64(h.Len) > uint64(len(b)) {
			return local, segment, shared
		}
		data := b[unix.SizeofCmsghdr:h.Len]
		switch {
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			segment = max(int(int32(binary.NativeEndian.Uint32(data))), 0)
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: interface, local address, header's destination.
			// The last two differ for broadcasts, which nobody can reply from. A
			// dual-stack socket tells both this and, before it, the mapped one
			// below, which is the header's.
			shared = [4]byte(data[4:8]) != [4]byte(data[8:12])
			if a := netip.AddrFrom4([4]byte(data[4:8])); !a.IsMulticast() {
				local = Local{addr: a.As16()}
			}
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			switch a := netip.AddrFrom16([16]byte(data[:16])); {
			case a.IsMulticast():
				// Nobody can reply from a group's address: let the system choose.
				local, shared = Local{}, true
			case a.IsLinkLocalUnicast():
				local = Local{addr: a.As16(), index: binary.NativeEndian.Uint32(data[16:])}
			default:
				local = Local{addr: a.As16()}
			}
		}
		b = b[min(unix.CmsgSpace(len(data)), len(b)):]
	}
	return local, segment, shared
}

// appendLocal has a datagram to a peer of the family leave from l.
func appendLocal(b []byte, family uint16, l Local) []byte {
	if l == (Local{}) {
		return b
	}
	if family == unix.AF_INET {
		b, data := appendHeader(b, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		copy(data[4:8], l.addr[12:])
		return b
	}
	b, data := appendHeader(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	copy(data, l.addr[:])
	binary.NativeEndian.PutUint32(data[16:], l.index)
	return b
}

// appendSegment has the kernel cut a message into datagrams of size bytes, the last
// one excepted (UDP_SEGMENT, Linux 4.18).
func appendSegment(b []byte, size int) []byte {
	b, data := appendHeader(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(data, uint16(size))
	return b
}

// appendHeader appends a header and n zeros, padded; b must have room for it.
func appendHeader(b []byte, level, kind int32, n int) (grown, data []byte) {
	start := len(b)
	b = b[:start+unix.CmsgSpace(n)]
	clear(b[start:])
	h := unix.Cmsghdr{Level: level, Type: kind}
	h.SetLen(unix.CmsgLen(n))
	copy(b[start:], unsafe.Slice((*byte)(unsafe.Pointer(&h)), unix.SizeofCmsghdr))
	return b, b[start+unix.SizeofCmsghdr:]
}
