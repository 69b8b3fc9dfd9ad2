package wire

import (
	"bytes"
	"net/netip"
	"strconv"
)

// What a line of version 1 begins with, and how long it may be at most with its
// CRLF.
const (
	proxyV1Start   = "PROXY "
	proxyV1TCP4    = proxyV1Start + "TCP4 "
	proxyV1TCP6    = proxyV1Start + "TCP6 "
	proxyV1Unknown = proxyV1Start + "UNKNOWN"
	maxProxyV1     = 107
)

func (p *ProxyParser) parseV1(b []byte) (int, error) {
	start, unknown := len(proxyV1TCP4), false
	if !agrees(b, proxyV1TCP4) && !agrees(b, proxyV1TCP6) {
		if start, unknown = len(proxyV1Unknown), true; !agrees(b, proxyV1Unknown) {
			return 0, errProxyLine
		}
	}
	// The addresses are decoded only when the whole line is there, since a number
	// may still go on.
	for p.seen = max(p.seen, start); p.seen < min(len(b), maxProxyV1); p.seen++ {
		c, cr := b[p.seen], b[p.seen-1] == '\r'
		switch {
		case c == '\n' && cr:
			return p.lineV1(b[:p.seen+1], unknown)
		case unknown:
			// Whatever else is in the line is ignored, lone CRs and LFs too, but first
			// the keyword has to end.
			switch {
			case p.seen == start && c != ' ' && c != '\r':
				return 0, errProxyLine
			case p.seen == start+1 && cr:
				return 0, errProxyLineEnd
			}
		case c == '\n' || cr:
			return 0, errProxyLineEnd
		}
	}
	if len(b) >= maxProxyV1 {
		return 0, errProxyLineLong
	}
	return 0, nil
}

func (p *ProxyParser) lineV1(line []byte, unknown bool) (int, error) {
	h := ProxyHeader{Version: 1, Local: unknown}
	if !unknown {
		v4 := agrees(line, proxyV1TCP4)
		fields := line[len(proxyV1TCP4) : len(line)-len("\r\n")]
		source, fields, ok1 := bytes.Cut(fields, space)
		destination, fields, ok2 := bytes.Cut(fields, space)
		sport, dport, ok3 := bytes.Cut(fields, space)
		if !ok1 || !ok2 || !ok3 || bytes.IndexByte(dport, ' ') >= 0 {
			return 0, errProxyFields
		}
		src, ok1 := parseAddr(source, v4)
		dst, ok2 := parseAddr(destination, v4)
		if !ok1 || !ok2 {
			return 0, errProxyAddress
		}
		sp, rest1, ok1 := cutDecimal(sport, 65535)
		dp, rest2, ok2 := cutDecimal(dport, 65535)
		if !ok1 || !ok2 || len(rest1) > 0 || len(rest2) > 0 {
			return 0, errProxyPort
		}
		h.Source = netip.AddrPortFrom(src, uint16(sp))
		h.Destination = netip.AddrPortFrom(dst, uint16(dp))
	}
	p.header = h
	return len(line), nil
}

var space = []byte{' '}

// AppendProxyV1 appends the header of version 1 for a connection of src, the client,
// to dst, what it connected to. It has at most 107 bytes. The line states one family
// for both: if only one of them is IPv4 it is written as the IPv6 address it maps to
// (RFC 4291, 2.5.5.2), so that the client's address gets through. Zones are left
// out. If one of them is the zero value, as for a client on a Unix socket, the
// protocol is UNKNOWN.
func AppendProxyV1(b []byte, src, dst netip.AddrPort) []byte {
	s, d, v4 := sameFamily(src, dst)
	switch {
	case !s.IsValid():
		return AppendProxyV1Unknown(b)
	case v4:
		b = append(b, proxyV1TCP4...)
	default:
		b = append(b, proxyV1TCP6...)
	}
	b = append(appendV1Addr(b, s), ' ')
	b = append(appendV1Addr(b, d), ' ')
	b = append(strconv.AppendUint(b, uint64(src.Port()), 10), ' ')
	b = strconv.AppendUint(b, uint64(dst.Port()), 10)
	return append(b, "\r\n"...)
}

// appendV1Addr writes a mapped address in hexadecimal too, since the specification
// knows no dots in IPv6 addresses.
func appendV1Addr(b []byte, a netip.Addr) []byte {
	if !a.Is4In6() {
		return a.AppendTo(b)
	}
	ip := a.As16()
	b = append(b, "::ffff:"...)
	b = strconv.AppendUint(b, uint64(ip[12])<<8|uint64(ip[13]), 16)
	b = append(b, ':')
	return strconv.AppendUint(b, uint64(ip[14])<<8|uint64(ip[15]), 16)
}

// sameFamily returns both addresses without zone and as IPv4 if both are, else as
// IPv6; two zero values if one is not valid.
func sameFamily(src, dst netip.AddrPort) (s, d netip.Addr, v4 bool) {
	if !src.IsValid() || !dst.IsValid() {
		return netip.Addr{}, netip.Addr{}, false
	}
	s, d = src.Addr().Unmap().WithZone(""), dst.Addr().Unmap().WithZone("")
	if s.Is4() && d.Is4() {
		return s, d, true
	}
	return netip.AddrFrom16(s.As16()), netip.AddrFrom16(d.As16()), false
}
