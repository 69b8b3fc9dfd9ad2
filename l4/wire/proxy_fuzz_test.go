package wire

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

// Whatever comes: the segments make no difference, the length is within bounds,
// nothing behind the header matters, and another implementation that accepts it too
// reads the same.
func FuzzProxy(f *testing.F) {
	for _, tt := range goodProxyHeaders {
		if len(tt.header) < 2000 {
			f.Add([]byte(tt.header), uint8(3))
		}
	}
	for _, s := range []string{
		"GET / HTTP/1.1\r\n\r\n", "PROXY TCP4 999.1.1.1 1.1.1.1 1 1\r\n", "PROXY TCP6 ::1 ::1 70000 1\r\n",
		v2(0x21, 0x11, inet+tlv(TLVSSL, "\x01\x00\x00\x00\x00"+tlv(0x21, "TLSv1.3"))), v2(0x31, 0x11, inet), v2(0x21, 0x41, inet),
		v2(0x21, 0x11, inet+"\x04\x00"), "PROXY TCP4 " + strings.Repeat("1", 100),
	} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		p := ProxyParser{Accept: AcceptAny}
		n, err := p.Next(stream)
		h := p.Header()
		if n < 0 || n > len(stream) || n > 0 && err != nil {
			t.Fatalf("%d of %d bytes, %v", n, len(stream), err)
		}
		lengths := eachByte(len(stream))
		if len(stream) > 4096 {
			lengths = []int{len(stream)}
		}
		for _, lengths := range [][]int{lengths, {min(int(cut), len(stream)), len(stream)}} {
			h1, n1, err1 := feedProxy(AcceptAny, stream, lengths)
			if n1 != n || !sameError(err1, err) || !sameHeader(h1, h) {
				t.Fatalf("in steps %v: %d, %v, %+v; at once: %d, %v, %+v", lengths, n1, err1, h1, n, err, h)
			}
		}
		if n == 0 {
			if err == nil && len(stream) >= MaxProxyHeader {
				t.Fatalf("more than %d bytes are asked for", len(stream))
			}
			return
		}
		if h.Local && (h.Source.IsValid() || h.Destination.IsValid()) || !h.Local && !(h.Source.IsValid() && h.Destination.IsValid()) ||
			h.Source.Addr().Is4In6() || h.Destination.Addr().Is4In6() {
			t.Fatalf("%+v", h)
		}
		for _, v := range []ProxyAccept{AcceptV1, AcceptV2} {
			q := ProxyParser{Accept: v}
			if m, err := q.Next(stream); (m == n) != (h.Version == uint8(v)) || (err == nil) != (m == n) {
				t.Fatalf("accepting %d: %d, %v", v, m, err)
			}
		}
		if other, err := readOther(stream[:n]); err == nil {
			sameAsOther(t, stream[:n], h, other)
		} else if h.Version == 1 && !bytes.Contains(stream[:n-2], []byte{'\n'}) {
			t.Fatalf("%q accepted, the other says %v", stream[:n], err)
		}
	})
}

// Addresses are valid to us where they are to package netip, zones apart.
func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{
		"", "0.0.0.0", "255.255.255.255", "1.2.3", "1.2.3.4.", "01.2.3.4", "1.2.3.256", "::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8",
		"1:2:3:4:5:6:7:8:9", "1:2:3:4::5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3", "1::2::3", ":1", "1:", ":::", "12345::", "g::", "fe80::1%eth0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := netip.ParseAddr(s)
		want4, want6 := err == nil && want.Is4(), err == nil && want.Is6() && want.Zone() == ""
		if got, ok := parseAddr([]byte(s), true); ok != want4 || ok && got != want {
			t.Errorf("IPv4 %q: %v, %v; want %v, %v", s, got, ok, want, err)
		}
		if got, ok := parseAddr([]byte(s), false); ok != want6 || ok && got != want.Unmap() {
			t.Errorf("IPv6 %q: %v, %v; want %v, %v", s, got, ok, want, err)
		}
	})
}
