package wire

import (
	"encoding/binary"
	"net/netip"
)

// ProxyHeader is what a header of the PROXY protocol states.
type ProxyHeader struct {
	Version uint8 // 1 or 2

	// Local: the header states no address of use, because the command is LOCAL or
	// the protocol or family UNKNOWN, unspecified or Unix. The real addresses of the
	// connection hold, and Source and Destination are the zero value.
	Local bool

	// Datagram: the client speaks UDP to the sender of the header.
	Datagram bool

	// The client, and what it connected to; unmapped.
	Source, Destination netip.AddrPort

	// TLVs are the fields behind the addresses, as they came; they are well formed,
	// and the checksum is right if there is one. They alias the bytes that were given
	// to the last Next. There are none with LOCAL or an unspecified family, where
	// everything after the length is to be skipped.
	TLVs []byte
}

// TLV returns the value of the first field of a type. It aliases h.TLVs.
func (h ProxyHeader) TLV(typ byte) (value []byte, ok bool) {
	for rest := h.TLVs; len(rest) > 0; {
		var t byte
		if t, value, rest, ok = cutTLV(rest); !ok || t == typ {
			return value, ok
		}
	}
	return nil, false
}

// ProxyParser reads the header at the beginning of a stream. The zero value with
// Accept set is ready; to read another stream, set it to that again.
type ProxyParser struct {
	Accept ProxyAccept // versions let in; with 0 every stream is refused

	seen   int // bytes of a line of version 1 that have been searched for its end
	n      int // length of the header, once it is complete
	header ProxyHeader
}

// Next looks at b, all bytes of the stream so far. If the header is complete it is
// b[:n] with n > 0, and what follows belongs to the client. If n is 0 more bytes are
// needed; there are never more than MaxProxyHeader. An error, which wraps
// ErrProxyHeader, is final. Next allocates nothing.
func (p *ProxyParser) Next(b []byte) (n int, err error) {
	if p.n == 0 && len(b) > 0 {
		p.n, err = p.parse(b)
	}
	return p.n, err
}

// Header returns what the header states, once Next has returned its length.
func (p *ProxyParser) Header() ProxyHeader { return p.header }

func (p *ProxyParser) parse(b []byte) (int, error) {
	switch {
	case agrees(b, proxyV1Start):
		if p.Accept&AcceptV1 != 0 {
			return p.parseV1(b)
		}
		if len(b) >= len(proxyV1Start) {
			return 0, errProxyVersion
		}
	case agrees(b, proxyV2Signature):
		if p.Accept&AcceptV2 != 0 {
			return p.parseV2(b)
		}
		if len(b) >= len(proxyV2Signature) {
			return 0, errProxyVersion
		}
	}
	return 0, errProxyNone
}

// agrees says whether b and s are the same as far as both go.
func agrees(b []byte, s string) bool {
	n := min(len(b), len(s))
	return string(b[:n]) == s[:n]
}

func (p *ProxyParser) parseV2(b []byte) (int, error) {
	if len(b) > proxyV2Command {
		switch v := b[proxyV2Command]; {
		case v>>4 != 2:
			return 0, errProxyBinary
		case v != proxyV2Local && v != proxyV2Proxy:
			return 0, errProxyCommand
		}
	}
	if len(b) <= proxyV2Family {
		return 0, nil
	}
	h := ProxyHeader{Version: 2, Local: true}
	addresses := 0
	if b[proxyV2Command] == proxyV2Proxy {
		family, transport := b[proxyV2Family]>>4, b[proxyV2Family]&0xf
		if family > familyUnix || transport > transportDatagram {
			return 0, errProxyFamily
		}
		if transport != transportUnspec {
			addresses = [...]int{familyINET: lenINET, familyINET6: lenINET6, familyUnix: lenUnix}[family]
			h.Local = family == familyUnspec || family == familyUnix
			h.Datagram = transport == transportDatagram
		}
	}
	if len(b) < proxyV2Start {
		return 0, nil
	}
	length := int(binary.BigEndian.Uint16(b[proxyV2Length:]))
	if length < addresses {
		return 0, errProxyShort
	}
	n := proxyV2Start + length
	if len(b) < n {
		return 0, nil
	}
	if addresses > 0 {
		if err := checkTLVs(b[:n], proxyV2Start+addresses); err != nil {
			return 0, err
		}
		h.TLVs = b[proxyV2Start+addresses : n : n]
	}
	if a := b[proxyV2Start:n]; !h.Local {
		ip := (addresses - 2*2) / 2
		h.Source = addrPort(a[:ip], a[2*ip:])
		h.Destination = addrPort(a[ip:2*ip], a[2*ip+2:])
	}
	p.header = h
	return n, nil
}

// addrPort reads an address, all of ip, and a port, the first two bytes of port.
func addrPort(ip, port []byte) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip) // ip has 4 or 16 bytes
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}
