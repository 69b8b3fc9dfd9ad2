package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
)

// Case O-19, a to e: however a ClientHello comes, what it asks for is found.
func TestHelloInFragments(t *testing.T) {
	config := &tls.Config{ServerName: "a.test", NextProtos: []string{"h2", "http/1.1"}}
	usual := clientHello(config)
	message := string(usual[recordHeader:])
	if len(usual) < 1400 {
		t.Errorf("a ClientHello of %d bytes; a post-quantum key share should be in it", len(usual))
	}
	for _, tt := range []struct {
		name   string
		stream []byte
	}{
		{"as it comes", usual},
		{"two records", records(message, 40)},
		{"header in four records", records(message, 1, 1, 1, 1)},
		{"one-byte records", oneByteRecords(message)},
		{"5476 bytes", records(padded(config, 5476))},
		{"15000 bytes", records(padded(config, 15000))},
		{"40000 bytes", records(padded(config, 40000))},
		{"10000 one-byte records", oneByteRecords(padded(config, 10000))},
		{"as long as can be", records(padded(config, MaxHello-4*recordHeader))},
		{"followed by data", append(bytes.Clone(usual), 23, 3, 3, 0, 1, 0)},
		{"followed by data in its record", records(message + "more")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(lengths []int) {
				t.Helper()
				p, done, err := feedHello(tt.stream, lengths)
				if !done || err != nil || p.ServerName() != "a.test" || !slices.Equal(p.ALPN(), config.NextProtos) {
					t.Fatalf("%d bytes: %v, %v, %q, %q", len(tt.stream), done, err, p.ServerName(), p.ALPN())
				}
			}
			if len(tt.stream) < 2000 {
				splits(len(tt.stream), check)
			}
			check([]int{len(tt.stream)})
			check(eachByte(len(tt.stream)))
		})
	}
}

// Only the last byte completes a ClientHello, and no byte of it is an error.
func TestHelloIncomplete(t *testing.T) {
	message := string(clientHello(&tls.Config{ServerName: "a.test"})[recordHeader:])
	for _, stream := range [][]byte{records(message), records(message, 40, 3), oneByteRecords(helloMessage(sni("a.test")))} {
		for i := range stream {
			var p HelloParser
			if done, err := p.Next(stream[:i]); done || err != nil {
				t.Fatalf("after %d of %d bytes: %v, %v", i, len(stream), done, err)
			}
		}
	}
}

// What the parser keeps is not a part of the buffer, which is used again.
func TestHelloDoesNotAlias(t *testing.T) {
	b := records(helloMessage(sni("A.test"), alpn("h2")))
	var p HelloParser
	if done, err := p.Next(b); !done || err != nil {
		t.Fatal(done, err)
	}
	clear(b)
	if p.ServerName() != "a.test" || !p.HasALPN("h2") || p.ALPN()[0] != "h2" {
		t.Errorf("%q, %q", p.ServerName(), p.ALPN())
	}
	// And it does not look again.
	if done, err := p.Next(b); !done || err != nil {
		t.Error(done, err)
	}
}

// What Next has seen it does not look at again before the end: it could not bear
// what is put in its place.
func TestHelloLooksOnce(t *testing.T) {
	message := helloMessage(sni("a.test"), padding(100))
	for _, stream := range [][]byte{records(message), oneByteRecords(message)} {
		var p HelloParser
		b := bytes.Repeat([]byte{0xff}, len(stream))
		for i := range len(stream) - 1 {
			// A header of a record is looked at as a whole.
			start := i
			if p.left == 0 {
				start = p.pos
			}
			copy(b[start:], stream[start:i+1])
			if done, err := p.Next(b[:i+1]); done || err != nil {
				t.Fatalf("after %d bytes: %v, %v", i+1, done, err)
			}
			for j := range i {
				b[j] = 0xff
			}
		}
		if done, err := p.Next(stream); !done || err != nil || p.ServerName() != "a.test" {
			t.Fatal(done, err)
		}
	}
}

// Case O-20, and RFC 6066, section 3.
func TestHelloServerName(t *testing.T) {
	long := strings.Repeat("a.", 126) + "b" // 253 bytes
	for _, tt := range []struct {
		name, want string
		ok         bool
	}{
		{"a.test", "a.test", true},
		{"SHOP.Example.TEST", "shop.example.test", true},
		{"shop.example.test.", "shop.example.test", true},
		{"localhost", "localhost", true},
		{"_srv-1.a_b.test", "_srv-1.a_b.test", true},
		{"xn--bcher-kva.test", "xn--bcher-kva.test", true},
		{long, long, true},
		{long + ".", long, true},
		{"192.0.2.1", "", true},
		{"192.0.2.1.", "", true},
		{"2001:db8::1", "", true},
		{"::", "", true},
		{"1.2.3", "1.2.3", true},

		{long + "b", "", false},
		{"", "", false},
		{".", "", false},
		{"a.test..", "", false},
		{".a.test", "", false},
		{"a..test", "", false},
		{"*.test", "", false},
		{"a.test:443", "", false},
		{"[2001:db8::1]", "", false},
		{"a test", "", false},
		{"a.test\x00.b.test", "", false},
		{"bücher.test", "", false},
		{"a\n", "", false},
		{"\xff", "", false},
	} {
		var p HelloParser
		done, err := p.Next(records(helloMessage(alpn("h2"), sni(tt.name))))
		if done != tt.ok || (err == nil) != tt.ok || tt.ok && p.ServerName() != tt.want || !tt.ok && !errors.Is(err, ErrHello) {
			t.Errorf("%q: %v, %v, %q; want %v, %q", tt.name, done, err, p.ServerName(), tt.ok, tt.want)
		}
	}
}

func TestHelloWithoutName(t *testing.T) {
	for name, message := range map[string]string{
		"no extensions":     "\x01" + vec(3, helloStart),
		"empty extensions":  helloMessage(),
		"other extension":   helloMessage(ext(43, "\x02\x03\x04")),
		"other type alone":  helloMessage(ext(extServerName, vec(2, "\x01"+vec(2, "a.test")))),
		"unknown, repeated": helloMessage(padding(4), padding(5)),
	} {
		var p HelloParser
		if done, err := p.Next(records(message)); !done || err != nil || p.ServerName() != "" || p.ALPN() != nil || p.HasALPN("") {
			t.Errorf("%s: %v, %v, %q, %q", name, done, err, p.ServerName(), p.ALPN())
		}
	}
}

// Each is refused at a certain byte, and however it arrives.
func TestHelloRefused(t *testing.T) {
	good := helloMessage(sni("a.test"))
	replace := func(s, old, new string) string {
		if !strings.Contains(s, old) {
			panic(old)
		}
		return strings.Replace(s, old, new, 1)
	}
	for _, tt := range []struct {
		name   string
		stream string
		want   error
		at     int // the byte that shows it, counted from 1; 0 = the last
	}{
		{"SMTP", "EHLO x\r\n", ErrNotTLS, 1}, // case O-21
		{"PostgreSQL", "\x00\x00\x00\x08\x04\xd2\x16\x2f", ErrNotTLS, 1},
		{"SSL 2.0", "\x80\x2e\x01\x03\x01", ErrNotTLS, 1},
		{"alert", "\x15\x03\x01\x00\x02\x01\x00", ErrNotTLS, 1},
		{"something that begins with 22", "\x16\x10MQ", ErrNotTLS, 2},

		{"server hello", string(records("\x02" + good[1:])), errHelloType, 6},
		{"hello request", string(records("\x00\x00\x00\x00")), errHelloType, 6},
		{"empty record", "\x16\x03\x01\x00\x00", errHelloLength, 5},
		{"empty second record", string(records(good, 40)[:45]) + "\x16\x03\x01\x00\x00", errHelloLength, 0},
		{"record of 16385 bytes", "\x16\x03\x01\x40\x01", errHelloLength, 5},
		{"alert in between", string(records(good, 40)[:45]) + "\x15\x03\x01\x00\x02\x01\x00", errHelloRecord, 46},
		{"second record of another version", string(records(good, 40)[:45]) + "\x16\x02\x01\x00\x02\x01\x00", errHelloVersion, 47},

		{"length 0xFFFFFF", "\x16\x03\x01\x02\x00\x01\xff\xff\xff" + strings.Repeat("x", 100), ErrHelloTooLarge, 9}, // case O-19 f
		{"length 0xFFFFFF in small records", string(records("\x01\xff\xff\xff"+strings.Repeat("x", 100), 1, 2, 3)), ErrHelloTooLarge, 19},
		{"one byte too long", string(records(helloMessage(padding(MaxHello - 4*recordHeader - len(helloMessage()) + 1)))), ErrHelloTooLarge, 9},
		{"too many records", string(oneByteRecords(helloMessage(padding(12000)))), ErrHelloTooLarge, -1},

		{"truncated version", string(records("\x01" + vec(3, "\x03"))), errHelloFraming, 0},
		{"empty message", string(records("\x01" + vec(3, ""))), errHelloFraming, 0},
		{"session id too long", string(records(replace(good, "\x07session", "\xffsession"))), errHelloFraming, 0},
		{"cipher suites too long", string(records(replace(good, "\x00\x02\x13\x01", "\xff\xff\x13\x01"))), errHelloFraming, 0},
		{"no compression methods", string(records("\x01" + vec(3, helloStart[:len(helloStart)-2]))), errHelloFraming, 0},
		{"extensions too short", string(records("\x01" + vec(3, helloStart+vec(2, sni("a.test"))+"x"))), errHelloFraming, 0},
		{"extensions too long", string(records("\x01" + vec(3, helloStart+"\x00\x05"+"\x00\x15\x00\x00"))), errHelloFraming, 0},
		{"half a length of extensions", string(records("\x01" + vec(3, helloStart+"\x00"))), errHelloFraming, 0},
		{"extension too long", string(records(helloMessage("\x00\x15\x00\x01"))), errHelloFraming, 0},
		{"half an extension", string(records(helloMessage("\x00\x15\x00"))), errHelloFraming, 0},

		{"two server_name extensions", string(records(helloMessage(sni("a.test"), sni("a.test")))), errHelloRepeated, 0},
		{"two ALPN extensions", string(records(helloMessage(alpn("h2"), sni("a.test"), alpn("h2")))), errHelloRepeated, 0},
		{"two names", string(records(helloMessage(sni("a.test", "b.test")))), errHelloName, 0},
		{"no name in the list", string(records(helloMessage(ext(extServerName, vec(2, ""))))), errHelloName, 0},
		{"no list of names", string(records(helloMessage(ext(extServerName, "")))), errHelloName, 0},
		{"bytes after the list of names", string(records(helloMessage(ext(extServerName, vec(2, "\x00"+vec(2, "a.test"))+"x")))), errHelloName, 0},
		{"name too long", string(records(helloMessage(ext(extServerName, vec(2, "\x00\x00\x09a.test"))))), errHelloName, 0},
		{"a type and no name", string(records(helloMessage(ext(extServerName, vec(2, "\x00"))))), errHelloName, 0},

		{"no ALPN protocol", string(records(helloMessage(alpn()))), errHelloALPN, 0},
		{"no list of ALPN", string(records(helloMessage(ext(extALPN, "")))), errHelloALPN, 0},
		{"empty ALPN protocol", string(records(helloMessage(alpn("h2", "")))), errHelloALPN, 0},
		{"ALPN protocol too long", string(records(helloMessage(ext(extALPN, vec(2, "\x03h2"))))), errHelloALPN, 0},
		{"bytes after ALPN", string(records(helloMessage(ext(extALPN, vec(2, "\x02h2")+"x")))), errHelloALPN, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := []byte(tt.stream)
			check := func(lengths []int) {
				t.Helper()
				p, done, err := feedHello(stream, lengths)
				if done || !sameError(err, tt.want) {
					t.Fatalf("in steps %.20v: %v, %v; want %v", lengths, done, err, tt.want)
				}
				if _, again := p.Next(stream); again != err {
					t.Fatalf("first %v, then %v", err, again)
				}
			}
			if len(stream) < 1000 {
				splits(len(stream), check)
			}
			check([]int{len(stream)})
			check(eachByte(len(stream)))
			if tt.at == 0 {
				tt.at = len(stream)
			}
			if tt.at < 0 {
				return
			}
			if _, done, err := feedHello(stream, []int{tt.at - 1}); done || err != nil {
				t.Errorf("after %d bytes: %v, %v", tt.at-1, done, err)
			}
			if _, _, err := feedHello(stream, []int{tt.at}); !sameError(err, tt.want) {
				t.Errorf("after %d bytes: %v; want %v", tt.at, err, tt.want)
			}
		})
	}
}

// The parser never asks for more than MaxHello bytes.
func TestHelloBounded(t *testing.T) {
	for _, size := range []int{1, 5, 1000, maxFragment} {
		for _, length := range []int{100, 20000, MaxHello - recordHeader - messageHeader, MaxHello} {
			sizes := make([]int, length/size+1)
			for i := range sizes {
				sizes[i] = size
			}
			stream := records("\x01"+vec(3, strings.Repeat("x", length)), sizes...)
			stream = append(stream, make([]byte, MaxHello)...)
			if _, done, err := feedHello(stream, []int{MaxHello}); done || err == nil {
				t.Errorf("%d bytes in records of %d: more than %d bytes are asked for", length, size, MaxHello)
			}
		}
	}
}

func TestHelloAllocations(t *testing.T) {
	b := records(helloMessage(sni("a.test"), alpn("h2", "http/1.1")))
	var p HelloParser
	n := testing.AllocsPerRun(100, func() {
		p = HelloParser{}
		for _, l := range []int{3, 20, len(b)} {
			if _, err := p.Next(b[:l]); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n > 2 { // the name and the list of protocols
		t.Errorf("%v allocations", n)
	}
	noAllocations(t, "HasALPN", func() {
		if !p.HasALPN("http/1.1") || p.HasALPN("h3") || p.HasALPN("http/1") {
			t.Fatal(p.ALPN())
		}
	})
	bad := []byte("EHLO x\r\n")
	noAllocations(t, "not TLS", func() {
		p = HelloParser{}
		if _, err := p.Next(bad); err == nil {
			t.Fatal("accepted")
		}
	})
}
