package tcp_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

// stating has connections to backends begin with a header.
func stating(out tcp.ProxyOut) func(*tcp.Route) {
	return func(r *tcp.Route) { r.To.Proxy = out }
}

// headers is a backend that says what headers it gets, each with what follows it.
func headers(t *testing.T) (balance.BackendSpec, chan wire.ProxyHeader, chan string) {
	got, rest := make(chan wire.ProxyHeader, 16), make(chan string, 16)
	return serve(t, func(c *net.TCPConn) {
		h, err := readHeader(c)
		if err != nil {
			t.Errorf("the backend's header: %v", err)
		}
		h.TLVs = bytes.Clone(h.TLVs)
		got <- h
		b, _ := io.ReadAll(c)
		rest <- string(b)
	}), got, rest
}

func TestProxyHeaderOut(t *testing.T) {
	for _, version := range []int{1, 2} {
		b, got, rest := headers(t)
		p := start(t, one(b), stating(tcp.ProxyOut{Version: version}))
		c := p.dial()
		h := <-got // it does not wait for the client's first byte
		c.Write([]byte("hello"))
		c.CloseWrite()
		if s := <-rest; s != "hello" {
			t.Errorf("v%d: %q", version, s)
		}
		if h.Source.String() != c.LocalAddr().String() || h.Destination.String() != p.addr || int(h.Version) != version || len(h.TLVs) > 0 {
			t.Errorf("v%d: %+v", version, h)
		}
		if s := p.outcome(l4.OK); s.BytesIn != 5 {
			t.Errorf("v%d: %d bytes in", version, s.BytesIn)
		}
	}
}

// What came in goes out: addresses of the other family than the connections',
// and the unique id.
func TestProxyHeaderHandedOn(t *testing.T) {
	b, got, rest := headers(t)
	p := start(t, one(b), trusting(wire.AcceptAny), stating(tcp.ProxyOut{Version: 2, UniqueID: true, Custom: []wire.TLV{{Type: 0xE0, Value: []byte("custom")}}}))
	c := p.dial()
	payload := strings.Repeat("0123456789", 500)
	ips := string(netip.MustParseAddr("2001:db8::7").AsSlice()) + string(netip.MustParseAddr("2001:db8::9").AsSlice())
	deliver(t, c, signature+"\x21\x21\x00\x29"+ips+"\x9c\x40\x01\xbb"+"\x05\x00\x02id"+payload)
	c.CloseWrite()
	h := <-got
	if h.Source.String() != "[2001:db8::7]:40000" || h.Destination.String() != "[2001:db8::9]:443" {
		t.Errorf("%+v", h)
	}
	if id, _ := h.TLV(wire.TLVUniqueID); string(id) != "id" {
		t.Errorf("unique id %q", id)
	}
	if v, _ := h.TLV(0xE0); string(v) != "custom" {
		t.Errorf("custom field %q", v)
	}
	if s := <-rest; s != payload {
		t.Errorf("%d bytes behind the header", len(s))
	}
	if s := p.outcome(l4.OK); s.BytesIn != uint64(len(payload)) {
		t.Errorf("%d bytes in", s.BytesIn)
	}
}

// The id is made once for a connection, and again for the next one.
func TestUniqueIDStaysOverRetries(t *testing.T) {
	var ids [2]chan string
	var backends []balance.BackendSpec
	for i := range ids {
		ids[i] = make(chan string, 4)
		b := serve(t, func(c *net.TCPConn) {
			h, err := readHeader(c)
			if err != nil {
				t.Error(err)
			}
			id, _ := h.TLV(wire.TLVUniqueID)
			ids[i] <- string(id)
			io.ReadFull(c, make([]byte, 5))
			if i == 1 {
				c.Write([]byte("answer"))
			}
		})
		backends = append(backends, named(b, string(rune('a'+i))))
	}
	p := start(t, backends, stating(tcp.ProxyOut{Version: 2, UniqueID: true}), func(r *tcp.Route) { r.To.Replay = 1000 })
	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "first", Backends: backends})
	seen := map[string]bool{}
	for range 3 {
		c := p.dial()
		c.Write([]byte("hello"))
		if b, err := io.ReadAll(c); string(b) != "answer" {
			t.Fatalf("%q, %v", b, err)
		}
		first, second := <-ids[0], <-ids[1]
		if first != second || first == "" || seen[first] {
			t.Errorf("ids %q and %q, seen before: %v", first, second, seen[first])
		}
		seen[first] = true
		c.Close()
	}
}

// What a client's TLS was like is told, and the header comes before the TLS to the
// backend.
func TestProxyHeaderTellsOfTLS(t *testing.T) {
	b, got := tellsOfTLS(t)
	p := start(t, one(b), func(r *tcp.Route) {
		r.Spec.FirstBytes, r.Spec.MaxHandshakes = patience, 10
		r.TLS = serverTLS(t, func(s *cert.Spec) {
			s.ClientCA, s.ClientOptional, s.ALPN = "yes", true, []string{"x-test"}
		})
		r.To.TLS = backendTLS(t)
		r.To.Proxy = tcp.ProxyOut{Version: 2, Authority: true, ALPN: true, SSL: true}
	})
	for _, shows := range []bool{true, false} {
		config := clientConfig()
		config.ServerName, config.NextProtos = "www.A.test", []string{"x-test"}
		if shows {
			config.Certificates = []tls.Certificate{creds().pair}
		}
		c := tls.Client(p.dial(), config)
		c.Write([]byte("x"))
		h := <-got
		for typ, want := range map[byte]string{wire.TLVAuthority: "www.a.test", wire.TLVALPN: "x-test"} {
			if v, _ := h.TLV(typ); string(v) != want {
				t.Errorf("field %#x: %q", typ, v)
			}
		}
		ssl, _ := h.TLV(wire.TLVSSL)
		if len(ssl) < 5 || !bytes.Contains(ssl, []byte("TLSv1.3")) {
			t.Fatalf("SSL field %q", ssl)
		}
		client, verify := byte(1), []byte{0, 0, 0, 1}
		if shows {
			client, verify = 7, []byte{0, 0, 0, 0}
		}
		if ssl[0] != client || !slices.Equal(ssl[1:5], verify) || bytes.Contains(ssl, []byte("somebody")) != shows {
			t.Errorf("with certificate %v: SSL field %q", shows, ssl)
		}
		if b, err := io.ReadAll(c); err != nil || string(b) != "x" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
	}
}

func tellsOfTLS(t *testing.T) (balance.BackendSpec, chan wire.ProxyHeader) {
	got := make(chan wire.ProxyHeader, 4)
	return serve(t, func(c *net.TCPConn) {
		h, err := readHeader(c)
		if err != nil {
			t.Error(err)
			return
		}
		h.TLVs = bytes.Clone(h.TLVs)
		got <- h
		e := tlsServer(c)
		one := make([]byte, 1)
		if _, err := io.ReadFull(e, one); err != nil {
			t.Error(err)
		}
		e.Write(one)
		e.Close()
	}), got
}

// A name that no DNS has must not push out what else the header says.
func TestEndlessServerName(t *testing.T) {
	b, got := tellsOfTLS(t)
	p := start(t, one(b), func(r *tcp.Route) {
		r.Spec.FirstBytes, r.Spec.MaxHandshakes = patience, 10
		r.TLS = serverTLS(t, nil)
		r.To.TLS = backendTLS(t)
		r.To.Proxy = tcp.ProxyOut{Version: 2, Authority: true, SSL: true}
	})
	config := clientConfig()
	config.ServerName, config.InsecureSkipVerify = strings.Repeat("a", 60_000), true
	c := tls.Client(p.dial(), config)
	c.Write([]byte("x"))
	h := <-got
	if _, ok := h.TLV(wire.TLVAuthority); ok {
		t.Error("the name is in the header")
	}
	if _, ok := h.TLV(wire.TLVSSL); !ok {
		t.Error("the header says nothing of TLS")
	}
	io.ReadAll(c)
}
