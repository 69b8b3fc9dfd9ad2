package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sameAsTLS compares what the parser found with what a server of crypto/tls finds.
func sameAsTLS(t interface{ Fatalf(string, ...any) }, p *HelloParser, info *tls.ClientHelloInfo) {
	name := strings.ToLower(info.ServerName)
	if _, err := netip.ParseAddr(name); err == nil {
		name = "" // an address, which crypto/tls lets through
	}
	if p.ServerName() != name || !slices.Equal(p.ALPN(), info.SupportedProtos) {
		t.Fatalf("%q, %q; crypto/tls says %q, %q", p.ServerName(), p.ALPN(), info.ServerName, info.SupportedProtos)
	}
	for _, proto := range info.SupportedProtos {
		if !p.HasALPN(proto) {
			t.Fatalf("no %q", proto)
		}
	}
}

// What clients of crypto/tls send is understood as a server of crypto/tls does,
// however it is spread over records and segments.
func TestHelloAgainstTLS(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := &tls.Config{
			ServerName: rapid.SampledFrom([]string{
				"", "a.test", "A.Test", "very-long-name." + strings.Repeat("label.", 30) + "test", "192.0.2.1", "2001:db8::1", "a.test.",
			}).Draw(t, "name"),
			NextProtos: rapid.SampledFrom([][]string{nil, {"h2"}, {"h2", "http/1.1"}, {"postgresql"}, {"H2", "a b"}}).Draw(t, "ALPN"),
			MinVersion: rapid.SampledFrom([]uint16{tls.VersionTLS10, tls.VersionTLS12, tls.VersionTLS13}).Draw(t, "min"),
			MaxVersion: rapid.SampledFrom([]uint16{0, tls.VersionTLS13}).Draw(t, "max"),
			CurvePreferences: rapid.SampledFrom([][]tls.CurveID{
				nil, {tls.X25519}, {tls.CurveP256, tls.CurveP384}, {tls.X25519MLKEM768},
			}).Draw(t, "curves"),
		}
		message := string(clientHello(config)[recordHeader:])
		if n := rapid.SampledFrom([]int{0, 0, 3000, 16384, 17000, 30000}).Draw(t, "length"); n > 0 {
			message = padded(config, n)
		}
		var sizes []int
		for left := len(message); left > 0 && len(sizes) < 2000; {
			n := rapid.SampledFrom([]int{1, 2, 3, 5, 100, 1000, maxFragment}).Draw(t, "record")
			sizes = append(sizes, n)
			left -= n
		}
		stream := records(message, sizes...)
		info := readHelloOther(stream)
		if info == nil {
			t.Fatalf("crypto/tls does not understand its own ClientHello of %d bytes", len(message))
		}
		p, done, err := feedHello(stream, drawLengths(t, len(stream)))
		if !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		sameAsTLS(t, &p, info)
	})
}

// stricter says whether a stream that crypto/tls accepts may be refused here: the
// kinds of record and the host names that it lets through and we do not.
func stricter(stream []byte, info *tls.ClientHelloInfo) bool {
	if _, ok := hostName([]byte(info.ServerName + ".")); info.ServerName != "" && !ok {
		return true
	}
	for rest := stream; len(rest) >= recordHeader; {
		n := int(rest[3])<<8 | int(rest[4])
		if rest[0] != recordHandshake || rest[1] != recordMajor || n > maxFragment {
			return true
		}
		rest = rest[min(recordHeader+n, len(rest)):]
	}
	return false
}

// Whatever comes: the segments make no difference, no more is asked for than there
// may be, and crypto/tls finds the same.
func FuzzHello(f *testing.F) {
	config := &tls.Config{ServerName: "a.test", NextProtos: []string{"h2", "http/1.1"}, CurvePreferences: []tls.CurveID{tls.X25519}}
	message := string(clientHello(config)[recordHeader:])
	for _, s := range [][]byte{
		records(message), records(message, 40), records(message, 1, 1, 1, 1, 1), oneByteRecords(helloMessage(sni("a.test"))),
		records(helloMessage(sni("A.TEST"), alpn("h2"))), records("\x01\xff\xff\xff"), records(helloMessage(sni("a.test", "b.test"))),
		records(helloMessage(sni("192.0.2.1"))), records("\x01" + vec(3, helloStart)), records("\x02" + message[1:]), []byte("EHLO x\r\n"),
		records(helloMessage(alpn("h2", ""))), records(helloMessage(sni("a.test"), sni("a.test"))), []byte("\x16\x03\x01\x40\x01"),
	} {
		f.Add(s, uint8(9))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		var p HelloParser
		done, err := p.Next(stream)
		if done && err != nil || !done && err == nil && len(stream) >= MaxHello {
			t.Fatalf("of %d bytes: %v, %v", len(stream), done, err)
		}
		if err != nil && !errors.Is(err, ErrNotTLS) && !errors.Is(err, ErrHello) && !errors.Is(err, ErrHelloTooLarge) {
			t.Fatal(err)
		}
		for _, lengths := range [][]int{eachByte(len(stream)), {min(int(cut), len(stream)), len(stream)}} {
			if p1, done1, err1 := feedHello(stream, lengths); done1 != done || !sameError(err1, err) || p1.hello != p.hello {
				t.Fatalf("in steps %v: %v, %v, %+v; at once: %v, %v, %+v", lengths, done1, err1, p1.hello, done, err, p.hello)
			}
		}
		info := readHelloOther(stream)
		switch {
		case info == nil:
		case done:
			sameAsTLS(t, &p, info)
		case !stricter(stream, info):
			t.Fatalf("refused, %v; crypto/tls says %q, %q", err, info.ServerName, info.SupportedProtos)
		}
		if !done {
			return
		}
		// Spread over other records it is the same message.
		var all []byte
		for rest := stream; len(rest) >= recordHeader && len(all) < p.want; {
			n := min(recordHeader+int(rest[3])<<8+int(rest[4]), len(rest))
			all, rest = append(all, rest[recordHeader:n]...), rest[n:]
		}
		if again := records(string(all[:p.want]), int(cut)+1, 1, 1, int(cut)+1); len(again) < MaxHello && !bytes.Equal(again, stream) {
			if q, done, err := feedHello(again, []int{len(again)}); !done || err != nil || q.hello != p.hello {
				t.Fatalf("in other records: %v, %v, %+v; want %+v", done, err, q.hello, p.hello)
			}
		}
	})
}
