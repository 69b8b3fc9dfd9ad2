package wire

import (
	"crypto/tls"
	"net/netip"
	"testing"
)

func BenchmarkProxyParser(b *testing.B) {
	h := ProxyV2{
		Source: netip.MustParseAddrPort("192.0.2.7:40000"), Destination: netip.MustParseAddrPort("198.51.100.9:443"),
		Authority: "shop.example.test", ALPN: "h2", CRC: true,
	}
	for _, bb := range []struct {
		name   string
		header []byte
	}{
		{"v1", AppendProxyV1(nil, h.Source, h.Destination)},
		{"v1-ipv6", AppendProxyV1(nil, netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2"))},
		{"v2-crc", h.Append(nil)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := ProxyParser{Accept: AcceptAny}
				if n, err := p.Next(bb.header); n == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkProxyAppend(b *testing.B) {
	room := make([]byte, 0, 256)
	h := ProxyV2{Source: netip.MustParseAddrPort("192.0.2.7:40000"), Destination: netip.MustParseAddrPort("198.51.100.9:443")}
	b.Run("v1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			AppendProxyV1(room, h.Source, h.Destination)
		}
	})
	b.Run("v2", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Append(room)
		}
	})
}

// The time of the last two is to be that of the first per byte, and not to grow with
// the square of the length.
func BenchmarkHelloParser(b *testing.B) {
	usual := clientHello(&tls.Config{ServerName: "shop.example.test", NextProtos: []string{"h2"}})
	long := records("\x01"+vec(3, helloStart+vec(2, sni("a.test")+padding(60000))), 16384)
	small := oneByteRecords(helloMessage(sni("a.test"), padding(10000)))
	for _, bb := range []struct {
		name    string
		stream  []byte
		lengths []int
	}{
		{"usual", usual, []int{len(usual)}},
		{"usual-1-byte-segments", usual, eachByte(len(usual))},
		{"60k-1-byte-segments", long, eachByte(len(long))},
		{"10k-1-byte-records-and-segments", small, eachByte(len(small))},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.stream)))
			b.ReportAllocs()
			for b.Loop() {
				if _, done, err := feedHello(bb.stream, bb.lengths); !done {
					b.Fatal(err)
				}
			}
		})
	}
}
