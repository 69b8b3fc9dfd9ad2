package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func sameHeader(a, b ProxyHeader) bool {
	same := bytes.Equal(a.TLVs, b.TLVs)
	a.TLVs, b.TLVs = nil, nil
	return same && reflect.DeepEqual(a, b)
}

// v2 makes a header of version 2: the two bytes after the signature, and what
// follows the length, which is stated correctly.
func v2(command, family byte, rest string) string {
	return proxyV2Signature + string([]byte{command, family, byte(len(rest) >> 8), byte(len(rest))}) + rest
}

func unhex(s string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return string(b)
}

func tlv(typ byte, value string) string {
	return string([]byte{typ, byte(len(value) >> 8), byte(len(value))}) + value
}

var (
	inet  = unhex("C0000207 C6336409 9C40 01BB") // 192.0.2.7:40000 -> 198.51.100.9:443
	inet6 = unhex("20010db8000000000000000000000001 20010db8000000000000000000000002 9C40 01BB")
	noop  = tlv(TLVNoop, strings.Repeat("x", 1500))
)

func stated(version uint8, src, dst, tlvs string) ProxyHeader {
	return ProxyHeader{
		Version: version, Source: netip.MustParseAddrPort(src), Destination: netip.MustParseAddrPort(dst), TLVs: []byte(tlvs),
	}
}

// goodProxyHeaders are headers of both versions and what they state; the vectors of
// cases O-16 and O-17 are among them.
var goodProxyHeaders = []struct {
	name, header string
	want         ProxyHeader
}{
	{"v1", "PROXY TCP4 192.0.2.7 198.51.100.9 40000 443\r\n", stated(1, "192.0.2.7:40000", "198.51.100.9:443", "")},
	{"v1 extremes", "PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n", stated(1, "255.255.255.255:65535", "0.0.0.0:0", "")},
	{"v1 IPv6", "PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 1 2\r\n", stated(1, "[2001:db8::1]:1", "[2001:db8::2]:2", "")},
	{"v1 mapped", "PROXY TCP6 ::ffff:c000:207 ::ffff:198.51.100.9 1 2\r\n", stated(1, "192.0.2.7:1", "198.51.100.9:2", "")},
	{
		"v1 longest IPv6", "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		stated(1, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", ""),
	},
	{"v1 unknown", "PROXY UNKNOWN\r\n", ProxyHeader{Version: 1, Local: true}},
	{"v1 unknown, 107 bytes", "PROXY UNKNOWN " + strings.Repeat("x", 91) + "\r\n", ProxyHeader{Version: 1, Local: true}},
	{
		"v1 unknown, longest addresses", "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		ProxyHeader{Version: 1, Local: true},
	},
	{"v1 unknown, lone CR and LF", "PROXY UNKNOWN a\rb\nc\r\r\n", ProxyHeader{Version: 1, Local: true}},

	{"v2", v2(0x21, 0x11, inet), stated(2, "192.0.2.7:40000", "198.51.100.9:443", "")},
	{"v2 with a long field", v2(0x21, 0x11, inet+noop), stated(2, "192.0.2.7:40000", "198.51.100.9:443", noop)},
	{"v2 IPv6", v2(0x21, 0x21, inet6), stated(2, "[2001:db8::1]:40000", "[2001:db8::2]:443", "")},
	{
		"v2 mapped", v2(0x21, 0x21, unhex("00000000000000000000ffffC0000207 00000000000000000000ffffC6336409 9C40 01BB")),
		stated(2, "192.0.2.7:40000", "198.51.100.9:443", ""),
	},
	{"v2 datagram", v2(0x21, 0x12, inet), ProxyHeader{
		Version: 2, Datagram: true,
		Source: netip.MustParseAddrPort("192.0.2.7:40000"), Destination: netip.MustParseAddrPort("198.51.100.9:443"),
	}},
	{"v2 unix", v2(0x21, 0x31, strings.Repeat("/", 216)+tlv(TLVALPN, "h2")), ProxyHeader{Version: 2, Local: true, TLVs: []byte(tlv(TLVALPN, "h2"))}},
	{"v2 unix datagram", v2(0x21, 0x32, strings.Repeat("/", 216)), ProxyHeader{Version: 2, Local: true, Datagram: true}},
	{"v2 unspecified", v2(0x21, 0x00, ""), ProxyHeader{Version: 2, Local: true}},
	{"v2 unspecified with bytes", v2(0x21, 0x00, "abc"), ProxyHeader{Version: 2, Local: true}},
	{"v2 unspecified transport", v2(0x21, 0x10, inet), ProxyHeader{Version: 2, Local: true}},
	{"v2 unspecified family", v2(0x21, 0x01, "a"), ProxyHeader{Version: 2, Local: true}},
	{"v2 local", v2(0x20, 0x00, ""), ProxyHeader{Version: 2, Local: true}},
	{"v2 local, addresses", v2(0x20, 0x11, strings.Repeat("\x00", 12)), ProxyHeader{Version: 2, Local: true}},
	{"v2 local, addresses and field", v2(0x20, 0x11, strings.Repeat("\x00", 12)+tlv(TLVNoop, strings.Repeat("\x00", 9))), ProxyHeader{Version: 2, Local: true}},
	{"v2 local, too short", v2(0x20, 0x11, "abc"), ProxyHeader{Version: 2, Local: true}},
	{"v2 local, any family", v2(0x20, 0xff, "abc"), ProxyHeader{Version: 2, Local: true}},
	{"v2 longest", v2(0x21, 0x11, inet+tlv(TLVNoop, strings.Repeat("x", 65535-12-3))), stated(2, "192.0.2.7:40000", "198.51.100.9:443", tlv(TLVNoop, strings.Repeat("x", 65535-12-3)))},
	{
		// CRC-32C of the header with zeros in its place, computed apart from this code.
		"v2 checksum", v2(0x21, 0x11, inet+tlv(TLVCRC32C, unhex("359bd3ee"))+tlv(TLVALPN, "h2")),
		stated(2, "192.0.2.7:40000", "198.51.100.9:443", tlv(TLVCRC32C, unhex("359bd3ee"))+tlv(TLVALPN, "h2")),
	},
}

// Case O-16: a header may be cut anywhere and be glued to what follows.
func TestGoodProxyHeaders(t *testing.T) {
	for _, tt := range goodProxyHeaders {
		t.Run(tt.name, func(t *testing.T) {
			check := func(stream string, lengths []int) {
				t.Helper()
				h, n, err := feedProxy(AcceptAny, []byte(stream), lengths)
				if n != len(tt.header) || err != nil {
					t.Fatalf("of %d bytes in steps %v: %d, %v; want %d", len(stream), lengths, n, err, len(tt.header))
				}
				if !sameHeader(h, tt.want) {
					t.Fatalf("in steps %v: %+v, want %+v", lengths, h, tt.want)
				}
			}
			if len(tt.header) < 2000 {
				splits(len(tt.header), func(lengths []int) { check(tt.header, lengths) })
			}
			glued := tt.header + strings.Repeat("payload\r\n", 555)
			check(glued, []int{len(glued)})
			check(glued, []int{len(tt.header) - 1, len(glued)})
			// A second header is payload (case O-18).
			check(tt.header+tt.header, []int{2 * len(tt.header)})
		})
	}
}

// Nothing but the last byte completes a header, and no byte of it is an error.
func TestProxyHeaderIncomplete(t *testing.T) {
	for _, tt := range goodProxyHeaders {
		for i := range min(len(tt.header), 2000) {
			p := ProxyParser{Accept: AcceptAny}
			if n, err := p.Next([]byte(tt.header[:i])); n != 0 || err != nil {
				t.Fatalf("%s: after %d of %d bytes: %d, %v", tt.name, i, len(tt.header), n, err)
			}
		}
	}
}

// Each is refused at a certain byte, not earlier and not later, and however it
// arrives.
func TestBadProxyHeaders(t *testing.T) {
	const never = 1 << 20
	for _, tt := range []struct {
		name, stream string
		want         error
		at           int // the byte that shows it, counted from 1; 0 = the last
	}{
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", errProxyNone, 1},
		{"HTTP that begins with P", "POST / HTTP/1.1\r\n\r\n", errProxyNone, 2},
		{"TLS", "\x16\x03\x01\x02\x00\x01", errProxyNone, 1},
		{"NUL", "\x00", errProxyNone, 1},
		{"empty line", "\r\n\r\nGET /", errProxyNone, 5},
		{"lower case", "proxy TCP4 192.0.2.7 198.51.100.9 1 2\r\n", errProxyNone, 1},

		{"v1 no space", "PROXYTCP4 192.0.2.7 198.51.100.9 1 2\r\n", errProxyNone, 6},
		{"v1 two spaces", "PROXY  TCP4 192.0.2.7 198.51.100.9 1 2\r\n", errProxyLine, 7},
		{"v1 UDP4", "PROXY UDP4 192.0.2.7 198.51.100.9 1 2\r\n", errProxyLine, 8},
		{"v1 TCP5", "PROXY TCP5 192.0.2.7 198.51.100.9 1 2\r\n", errProxyLine, 10},
		{"v1 TCP4 alone", "PROXY TCP4\r\n", errProxyLine, 11},
		{"v1 UNKNOWNS", "PROXY UNKNOWNS\r\n", errProxyLine, 14},
		{"v1 UNKNOWN and LF", "PROXY UNKNOWN\n", errProxyLine, 14},
		{"v1 UNKNOWN and CR", "PROXY UNKNOWN\rx\r\n", errProxyLineEnd, 15},
		{"v1 UNKNOWN of 108 bytes", "PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", errProxyLineLong, 107},
		{"v1 of 108 bytes without CRLF", "PROXY TCP4 " + strings.Repeat("1", 97), errProxyLineLong, 107},
		{"v1 LF", "PROXY TCP4 192.0.2.7 198.51.100.9 1 2\n", errProxyLineEnd, 0},
		{"v1 CR", "PROXY TCP4 192.0.2.7 198.51.100.9 1 2\rx\n", errProxyLineEnd, 39},
		{"v1 CR CRLF", "PROXY TCP4 192.0.2.7 198.51.100.9 1 2\r\r\n", errProxyLineEnd, 39},
		{"v1 no field", "PROXY TCP4 \r\n", errProxyFields, 0},
		{"v1 three fields", "PROXY TCP4 192.0.2.7 198.51.100.9 1\r\n", errProxyFields, 0},
		{"v1 five fields", "PROXY TCP4 192.0.2.7 198.51.100.9 1 2 3\r\n", errProxyFields, 0},
		{"v1 space at the end", "PROXY TCP4 192.0.2.7 198.51.100.9 1 2 \r\n", errProxyFields, 0},
		{"v1 wide space", "PROXY TCP4 192.0.2.7  198.51.100.9 1 2\r\n", errProxyFields, 0},
		{"v1 wide space, four fields", "PROXY TCP4  192.0.2.7 198.51.100.9 1\r\n", errProxyAddress, 0},
		{"v1 tab", "PROXY TCP4 192.0.2.7\t198.51.100.9 1 2\r\n", errProxyFields, 0},
		{"v1 999", "PROXY TCP4 999.1.1.1 198.51.100.9 40000 443\r\n", errProxyAddress, 0},
		{"v1 leading zero", "PROXY TCP4 192.0.02.7 198.51.100.9 1 2\r\n", errProxyAddress, 0},
		{"v1 three numbers", "PROXY TCP4 192.0.2 198.51.100.9 1 2\r\n", errProxyAddress, 0},
		{"v1 IPv6 as TCP4", "PROXY TCP4 2001:db8::1 198.51.100.9 1 2\r\n", errProxyAddress, 0},
		{"v1 IPv4 as TCP6", "PROXY TCP6 2001:db8::1 198.51.100.9 1 2\r\n", errProxyAddress, 0},
		{"v1 zone", "PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n", errProxyAddress, 0},
		{"v1 brackets", "PROXY TCP6 [2001:db8::1] 2001:db8::2 1 2\r\n", errProxyAddress, 0},
		{"v1 name", "PROXY TCP4 localhost 198.51.100.9 1 2\r\n", errProxyAddress, 0},
		{"v1 port 70000", "PROXY TCP4 192.0.2.7 198.51.100.9 70000 443\r\n", errProxyPort, 0},
		{"v1 port 65536", "PROXY TCP4 192.0.2.7 198.51.100.9 1 65536\r\n", errProxyPort, 0},
		{"v1 huge port", "PROXY TCP4 192.0.2.7 198.51.100.9 1 18446744073709551617\r\n", errProxyPort, 0},
		{"v1 port 01", "PROXY TCP4 192.0.2.7 198.51.100.9 01 2\r\n", errProxyPort, 0},
		{"v1 port +1", "PROXY TCP4 192.0.2.7 198.51.100.9 +1 2\r\n", errProxyPort, 0},
		{"v1 port -1", "PROXY TCP4 192.0.2.7 198.51.100.9 1 -1\r\n", errProxyPort, 0},
		{"v1 hexadecimal port", "PROXY TCP4 192.0.2.7 198.51.100.9 0x1 2\r\n", errProxyPort, 0},
		{"v1 NUL in port", "PROXY TCP4 192.0.2.7 198.51.100.9 1 2\x00\r\n", errProxyPort, 0},

		{"v2 last byte of the signature", unhex("0D0A0D0A000D0A515549540B 21"), errProxyNone, 12},
		{"v2 version 1", proxyV2Signature + unhex("11 11 000C"), errProxyBinary, 13},
		{"v2 version 3", proxyV2Signature + unhex("31 11 000C"), errProxyBinary, 13},
		{"v2 command 2", proxyV2Signature + unhex("22 11 000C"), errProxyCommand, 13},
		{"v2 family 4", proxyV2Signature + unhex("21 41 000C"), errProxyFamily, 14},
		{"v2 transport 3", proxyV2Signature + unhex("21 13 000C"), errProxyFamily, 14},
		{"v2 unspecified, transport 3", proxyV2Signature + unhex("21 03 000C"), errProxyFamily, 14},
		{"v2 short for IPv4", v2(0x21, 0x11, inet[1:]), errProxyShort, 16},
		{"v2 short for IPv6", v2(0x21, 0x22, inet6[1:]), errProxyShort, 16},
		{"v2 short for unix", v2(0x21, 0x31, strings.Repeat("/", 215)), errProxyShort, 16},
		{"v2 field of two bytes", v2(0x21, 0x11, inet+"\x04\x00"), errProxyTLV, 0},
		{"v2 field too long", v2(0x21, 0x11, inet+"\x04\x00\x02a"), errProxyTLV, 0},
		{"v2 second field too long", v2(0x21, 0x31, strings.Repeat("/", 216)+tlv(TLVALPN, "h2")+"\x04\x01\x00"), errProxyTLV, 0},
		{"v2 unique id of 129 bytes", v2(0x21, 0x11, inet+tlv(TLVUniqueID, strings.Repeat("x", 129))), errProxyUnique, 0},
		{"v2 checksum wrong", v2(0x21, 0x11, inet+tlv(TLVCRC32C, unhex("359bd3ef"))+tlv(TLVALPN, "h2")), errProxyChecksum, 0},
		{"v2 checksum swapped", v2(0x21, 0x11, inet+tlv(TLVCRC32C, unhex("eed39b35"))+tlv(TLVALPN, "h2")), errProxyChecksum, 0},
		{"v2 checksum short", v2(0x21, 0x11, inet+tlv(TLVCRC32C, "abc")), errProxyChecksum, 0},
		{"v2 checksum twice", v2(0x21, 0x11, inet+tlv(TLVCRC32C, "abcd")+tlv(TLVCRC32C, "abcd")), errProxyChecksum, 0},
		{"v2 never filled", proxyV2Signature + unhex("21 11 FFFF") + inet, nil, never},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := []byte(tt.stream)
			if tt.at == 0 {
				tt.at = len(stream)
			}
			splits(len(stream), func(lengths []int) {
				_, n, err := feedProxy(AcceptAny, stream, lengths)
				if n != 0 || !sameError(err, tt.want) || err != nil && !errors.Is(err, ErrProxyHeader) {
					t.Fatalf("%q in steps %v: %d, %v; want %v", stream, lengths, n, err, tt.want)
				}
			})
			for i := range min(tt.at, len(stream)) {
				p := ProxyParser{Accept: AcceptAny}
				if n, err := p.Next(stream[:i]); n != 0 || err != nil {
					t.Fatalf("%q is refused after %d bytes: %d, %v; want %d", stream[:i], i, n, err, tt.at)
				}
			}
			if tt.at == never {
				return
			}
			p := ProxyParser{Accept: AcceptAny}
			if _, err := p.Next(stream[:tt.at]); !sameError(err, tt.want) {
				t.Fatalf("%q: %v; want %v", stream[:tt.at], err, tt.want)
			}
		})
	}
}

// A version that is not accepted is refused at its first byte, and by its name once
// there is enough of it to tell.
func TestProxyAccept(t *testing.T) {
	v1, v2 := []byte("PROXY UNKNOWN\r\n"), []byte(v2(0x20, 0, ""))
	for _, tt := range []struct {
		accept ProxyAccept
		stream []byte
		want   error
	}{
		{AcceptAny, v1, nil},
		{AcceptAny, v2, nil},
		{AcceptV1, v1, nil},
		{AcceptV1, v2, errProxyVersion},
		{AcceptV1, v2[:1], errProxyNone},
		{AcceptV2, v2, nil},
		{AcceptV2, v1, errProxyVersion},
		{AcceptV2, v1[:1], errProxyNone},
		{0, v1, errProxyVersion},
		{0, v2, errProxyVersion},
	} {
		_, n, err := feedProxy(tt.accept, tt.stream, []int{len(tt.stream)})
		if !sameError(err, tt.want) || (n > 0) != (tt.want == nil) {
			t.Errorf("accepting %b, %q: %d, %v; want %v", tt.accept, tt.stream, n, err, tt.want)
		}
	}
}

// What Next has seen of a line it does not look at again: it could not bear what is
// put in its place.
func TestProxyParserLooksOnce(t *testing.T) {
	line := []byte("PROXY TCP6 2001:db8:1:2:3:4:5:6 2001:db8:6:5:4:3:2:1 40000 443\r\n")
	p := ProxyParser{Accept: AcceptAny}
	for i := range line {
		b := bytes.Clone(line[:i+1])
		for j := len(proxyV1TCP6); j < i-1 && i < len(line)-1; j++ {
			b[j] = '\n'
		}
		if n, err := p.Next(b); err != nil || (n > 0) != (i == len(line)-1) {
			t.Fatalf("after %d bytes: %d, %v", i+1, n, err)
		}
	}
}

func TestProxyHeaderTLV(t *testing.T) {
	h := ProxyHeader{TLVs: []byte(tlv(TLVALPN, "h2") + tlv(TLVNoop, "") + tlv(0xE0, "a") + tlv(0xE0, "b"))}
	for _, tt := range []struct {
		typ  byte
		want string
		ok   bool
	}{
		{TLVALPN, "h2", true},
		{TLVNoop, "", true},
		{0xE0, "a", true},
		{TLVAuthority, "", false},
	} {
		if v, ok := h.TLV(tt.typ); string(v) != tt.want || ok != tt.ok {
			t.Errorf("type %#x: %q, %v; want %q, %v", tt.typ, v, ok, tt.want, tt.ok)
		}
	}
}

func TestProxyParserAllocations(t *testing.T) {
	for _, tt := range goodProxyHeaders {
		header := []byte(tt.header)
		noAllocations(t, tt.name, func() {
			p := ProxyParser{Accept: AcceptAny}
			for _, l := range []int{1, 14, len(header)} {
				if _, err := p.Next(header[:l]); err != nil {
					t.Fatal(err)
				}
			}
			p.Header().TLV(TLVALPN)
		})
	}
	bad := []byte("PROXY TCP4 999.1.1.1 198.51.100.9 40000 443\r\n")
	noAllocations(t, "bad", func() {
		p := ProxyParser{Accept: AcceptAny}
		if _, err := p.Next(bad); err == nil {
			t.Fatal("accepted")
		}
	})
}
