package wire

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func addrPortOf(s string) netip.AddrPort {
	if s == "" {
		return netip.AddrPort{}
	}
	return netip.MustParseAddrPort(s)
}

func TestAppendProxyV1(t *testing.T) {
	for _, tt := range []struct{ src, dst, want string }{
		{"192.0.2.7:40000", "198.51.100.9:443", "PROXY TCP4 192.0.2.7 198.51.100.9 40000 443\r\n"},
		{"[::ffff:192.0.2.7]:40000", "198.51.100.9:443", "PROXY TCP4 192.0.2.7 198.51.100.9 40000 443\r\n"},
		{"0.0.0.0:0", "255.255.255.255:65535", "PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n"},
		{"[2001:db8::1]:1", "[2001:db8::2]:2", "PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n"},
		{"[fe80::1%eth0]:1", "[fe80::2%eth0]:2", "PROXY TCP6 fe80::1 fe80::2 1 2\r\n"},
		{"192.0.2.7:1", "[2001:db8::2]:2", "PROXY TCP6 ::ffff:c000:207 2001:db8::2 1 2\r\n"},
		{"[2001:db8::1]:1", "198.51.100.9:2", "PROXY TCP6 2001:db8::1 ::ffff:c633:6409 1 2\r\n"},
		{"", "198.51.100.9:2", "PROXY UNKNOWN\r\n"},
		{"192.0.2.7:1", "", "PROXY UNKNOWN\r\n"},
	} {
		if got := string(AppendProxyV1(nil, addrPortOf(tt.src), addrPortOf(tt.dst))); got != tt.want {
			t.Errorf("%q to %q: %q, want %q", tt.src, tt.dst, got, tt.want)
		}
	}
}

func TestAppendProxyV2(t *testing.T) {
	sig := hex.EncodeToString([]byte(proxyV2Signature))
	v4 := ProxyV2{Source: netip.MustParseAddrPort("192.0.2.7:40000"), Destination: netip.MustParseAddrPort("198.51.100.9:443")}
	with := func(change func(h *ProxyV2)) ProxyV2 {
		h := v4
		change(&h)
		return h
	}
	for _, tt := range []struct {
		name string
		h    ProxyV2
		want string // hex, after the signature
	}{
		{"IPv4", v4, "21 11 000c c0000207 c6336409 9c40 01bb"},
		{"datagram", with(func(h *ProxyV2) { h.Datagram = true }), "21 12 000c c0000207 c6336409 9c40 01bb"},
		{
			"IPv6", with(func(h *ProxyV2) { h.Source, h.Destination = addrPortOf("[fe80::1%x]:1"), addrPortOf("[2001:db8::2]:2") }),
			"21 21 0024 fe800000000000000000000000000001 20010db8000000000000000000000002 0001 0002",
		},
		{
			"mixed", with(func(h *ProxyV2) { h.Destination = addrPortOf("[2001:db8::2]:2"); h.Datagram = true }),
			"21 22 0024 00000000000000000000ffffc0000207 20010db8000000000000000000000002 9c40 0002",
		},
		{"mapped", with(func(h *ProxyV2) { h.Source = addrPortOf("[::ffff:192.0.2.7]:40000") }), "21 11 000c c0000207 c6336409 9c40 01bb"},
		{"none", ProxyV2{Datagram: true, ALPN: "h2"}, "21 00 0005 010002 6832"},
		{
			"fields", with(func(h *ProxyV2) {
				h.ALPN, h.Authority, h.UniqueID = "h2", "a.test", []byte{1, 0}
				h.Custom = []TLV{{0xE0, []byte("x")}, {TLVCRC32C, []byte("abcd")}, {0xE1, nil}}
			}),
			"21 11 0026 c0000207 c6336409 9c40 01bb 010002 6832 020006 612e74657374 050002 0100 e00001 78 e10000",
		},
		{
			"TLS", with(func(h *ProxyV2) { h.SSL = &ProxySSL{Version: "TLSv1.3", Cipher: "AES", Verified: true} }),
			"21 11 0024 c0000207 c6336409 9c40 01bb 200015 01 00000001 210007 544c5376312e33 230003 414553",
		},
		{
			"client certificate", with(func(h *ProxyV2) { h.SSL = &ProxySSL{CommonName: "bob", ClientCert: true, Verified: true} }),
			"21 11 001a c0000207 c6336409 9c40 01bb 20000b 07 00000000 220003 626f62",
		},
		{
			"unverified certificate", with(func(h *ProxyV2) { h.SSL = &ProxySSL{ClientCert: true} }),
			"21 11 0014 c0000207 c6336409 9c40 01bb 200005 07 00000001",
		},
		{"unique id too long", with(func(h *ProxyV2) { h.UniqueID = make([]byte, 129) }), "21 11 000c c0000207 c6336409 9c40 01bb"},
		{
			"checksum", with(func(h *ProxyV2) { h.CRC, h.ALPN = true, "h2" }),
			"21 11 0018 c0000207 c6336409 9c40 01bb 010002 6832 030004 9c93dcc4",
		},
	} {
		want := strings.ReplaceAll(tt.want, " ", "")
		got := hex.EncodeToString(tt.h.Append([]byte("before")))
		if got != hex.EncodeToString([]byte("before"))+sig+want {
			t.Errorf("%s: %s, want %s", tt.name, strings.TrimPrefix(got, hex.EncodeToString([]byte("before"))), sig+want)
		}
	}
}

// Fields that do not fit are left out whole, and the header can be read all the same.
func TestAppendProxyV2TooLarge(t *testing.T) {
	room := MaxProxyHeader - proxyV2Start - lenINET
	base := ProxyV2{Source: netip.MustParseAddrPort("192.0.2.7:40000"), Destination: netip.MustParseAddrPort("198.51.100.9:443")}
	for _, tt := range []struct {
		name   string
		change func(h *ProxyV2)
		length int    // of the header; 0 = any
		types  []byte // that are left
	}{
		{"just fits", func(h *ProxyV2) { h.Custom = []TLV{{0xE0, make([]byte, room-3)}} }, MaxProxyHeader, []byte{0xE0}},
		{"one byte more", func(h *ProxyV2) { h.Custom = []TLV{{0xE0, make([]byte, room-2)}, {0xE1, nil}} }, 0, []byte{0xE1}},
		{"just fits with a checksum", func(h *ProxyV2) { h.CRC = true; h.Custom = []TLV{{0xE0, make([]byte, room-3-7)}} }, MaxProxyHeader, []byte{0xE0, TLVCRC32C}},
		{"one byte more with a checksum", func(h *ProxyV2) { h.CRC = true; h.Custom = []TLV{{0xE0, make([]byte, room-2-7)}} }, 0, []byte{TLVCRC32C}},
		{"huge name", func(h *ProxyV2) { h.Authority, h.SSL = strings.Repeat("a", 70000), &ProxySSL{} }, 0, []byte{TLVSSL}},
		{"no room for TLS", func(h *ProxyV2) { h.Authority, h.SSL = strings.Repeat("a", room-3-7), &ProxySSL{} }, 0, []byte{TLVAuthority}},
		{"no room for the version", func(h *ProxyV2) { h.Authority, h.SSL = strings.Repeat("a", room-3-17), &ProxySSL{Version: "TLSv1.3"} }, 0, []byte{TLVAuthority}},
		{"room for TLS alone", func(h *ProxyV2) { h.Authority, h.SSL = strings.Repeat("a", room-3-8), &ProxySSL{Cipher: "AES"} }, MaxProxyHeader, []byte{TLVAuthority, TLVSSL}},
	} {
		h := base
		tt.change(&h)
		b := h.Append(nil)
		p := ProxyParser{Accept: AcceptV2}
		n, err := p.Next(b)
		if n != len(b) || err != nil || tt.length > 0 && n != tt.length {
			t.Errorf("%s: %d bytes: %d, %v; want %d", tt.name, len(b), n, err, tt.length)
			continue
		}
		var types []byte
		for rest := p.Header().TLVs; len(rest) > 0; {
			typ, _, tail, ok := cutTLV(rest)
			if !ok {
				t.Fatalf("%s: bad fields", tt.name)
			}
			types, rest = append(types, typ), tail
		}
		if !bytes.Equal(types, tt.types) {
			t.Errorf("%s: types %x, want %x", tt.name, types, tt.types)
		}
	}
}

func TestAppendProxyAllocations(t *testing.T) {
	room := make([]byte, 0, 1024)
	h := ProxyV2{
		Source: netip.MustParseAddrPort("192.0.2.7:40000"), Destination: netip.MustParseAddrPort("[2001:db8::2]:2"),
		ALPN: "h2", Authority: "a.test", UniqueID: []byte("id"), Custom: []TLV{{0xE0, []byte("x")}}, CRC: true,
		SSL: &ProxySSL{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", CommonName: "bob", ClientCert: true, Verified: true},
	}
	noAllocations(t, "v1", func() { AppendProxyV1(room, h.Source, h.Source) })
	noAllocations(t, "v1 mixed", func() { AppendProxyV1(room, h.Source, h.Destination) })
	noAllocations(t, "v2", func() { h.Append(room) })
	noAllocations(t, "SSLRequest", func() { AppendSSLRequest(room) })
}

// drawAddrPort draws an address of either family, mapped, or none.
func drawAddrPort(t *rapid.T, label string) netip.AddrPort {
	var a netip.Addr
	ip := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
	for i := range rapid.IntRange(0, 16).Draw(t, "zeros") { // so that "::" is written too
		ip[i] = 0
	}
	switch rapid.SampledFrom([]string{"4", "4", "6", "6", "mapped", "none"}).Draw(t, "family") {
	case "4":
		a = netip.AddrFrom4([4]byte(ip[12:]))
	case "6":
		a = netip.AddrFrom16(ip)
	case "mapped":
		a = netip.AddrFrom16(netip.AddrFrom4([4]byte(ip[12:])).As16())
	case "none":
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, rapid.Uint16().Draw(t, "port"))
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// drawProxyV2 draws what a balancer may have to say about a connection.
func drawProxyV2(t *rapid.T) ProxyV2 {
	text, ascii := rapid.StringN(0, 40, 80), rapid.StringMatching(`[A-Z0-9_-]{0,40}`)
	h := ProxyV2{
		Datagram: rapid.Bool().Draw(t, "datagram"),
		Source:   drawAddrPort(t, "source"), Destination: drawAddrPort(t, "destination"),
		ALPN: text.Draw(t, "ALPN"), Authority: text.Draw(t, "authority"),
		UniqueID: rapid.SliceOfN(rapid.Byte(), 0, MaxProxyUniqueID).Draw(t, "unique id"),
		CRC:      rapid.Bool().Draw(t, "CRC"),
	}
	if rapid.Bool().Draw(t, "TLS") {
		h.SSL = &ProxySSL{
			Version: rapid.SampledFrom([]string{"TLSv1.2", "TLSv1.3"}).Draw(t, "version"), Cipher: ascii.Draw(t, "cipher"), CommonName: text.Draw(t, "common name"),
			ClientCert: rapid.Bool().Draw(t, "certificate"), Verified: rapid.Bool().Draw(t, "verified"),
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "custom") {
		h.Custom = append(h.Custom, TLV{
			Type: rapid.ByteRange(0xE0, 0xEF).Draw(t, "type"), Value: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value"),
		})
	}
	return h
}

// What is written is read back, however it is cut and whatever follows it.
func TestProxyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawProxyV2(t)
		local := !want.Source.IsValid() || !want.Destination.IsValid()
		version := rapid.Uint8Range(1, 2).Draw(t, "version")
		var header []byte
		if version == 1 {
			header = AppendProxyV1(nil, want.Source, want.Destination)
		} else {
			header = want.Append(nil)
		}
		stream := append(bytes.Clone(header), rapid.SliceOf(rapid.Byte()).Draw(t, "payload")...)
		h, n, err := feedProxy(AcceptAny, stream, drawLengths(t, len(stream)))
		if n != len(header) || err != nil || h.Version != version || h.Local != local {
			t.Fatalf("%q: %d, %v, %+v", header, n, err, h)
		}
		if local {
			return
		}
		if h.Source != unmapped(want.Source) || h.Destination != unmapped(want.Destination) {
			t.Fatalf("%v to %v, want %v to %v", h.Source, h.Destination, want.Source, want.Destination)
		}
		if version == 1 {
			return
		}
		alpn, _ := h.TLV(TLVALPN)
		authority, _ := h.TLV(TLVAuthority)
		id, _ := h.TLV(TLVUniqueID)
		_, ssl := h.TLV(TLVSSL)
		_, crc := h.TLV(TLVCRC32C)
		if string(alpn) != want.ALPN || string(authority) != want.Authority || !bytes.Equal(id, want.UniqueID) ||
			ssl != (want.SSL != nil) || crc != want.CRC || h.Datagram != want.Datagram {
			t.Fatalf("%+v, want %+v", h, want)
		}
	})
}

// With a checksum, no changed bit of a header goes unnoticed.
func TestProxyChecksumEveryBit(t *testing.T) {
	h := ProxyV2{
		Source: netip.MustParseAddrPort("192.0.2.7:40000"), Destination: netip.MustParseAddrPort("198.51.100.9:443"),
		Authority: "a.test", CRC: true, Custom: []TLV{{0xE0, []byte("custom")}},
	}
	good := h.Append(nil)
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		// Some bits turn it into LOCAL, or make the family or the transport
		// unspecified, and what follows is not looked at.
		p := ProxyParser{Accept: AcceptV2}
		n, err := p.Next(b)
		switch {
		case n == 0: // an error, or a length that is not there
		case p.Header().Local:
		default:
			// A changed type or length can hide the checksum.
			if _, ok := p.Header().TLV(TLVCRC32C); ok {
				t.Errorf("bit %d: %d, %v", bit, n, err)
			}
		}
	}
}
