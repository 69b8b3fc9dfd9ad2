package tcp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

// trusting sets a service up that expects PROXY headers of the loopback.
func trusting(accept wire.ProxyAccept) func(*tcp.Route) {
	return func(r *tcp.Route) {
		r.Spec.FirstBytes = patience
		r.Spec.Proxy = tcp.ProxyIn{Accept: accept, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	}
}

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// header2 is a header of version 2 for theClient.
func header2(tlvs string) string {
	n := 12 + len(tlvs)
	return signature + "\x21\x11" + string([]byte{byte(n >> 8), byte(n)}) + "\xc0\x00\x02\x07\xc6\x33\x64\x09\x9c\x40\x01\xbb" + tlvs
}

// noop is a field of n bytes that says nothing.
func noop(n int) string {
	return "\x04" + string([]byte{byte(n >> 8), byte(n)}) + strings.Repeat("\x00", n)
}

// deliver writes pieces as segments of their own.
func deliver(t *testing.T, c net.Conn, pieces ...string) {
	t.Helper()
	for i, s := range pieces {
		if i > 0 {
			time.Sleep(3 * time.Millisecond)
		}
		if _, err := c.Write([]byte(s)); err != nil {
			t.Error(err)
			return
		}
	}
}

// collect is a backend that says what it has got by the end.
func collect(t *testing.T) (p func(adjust ...func(*tcp.Route)) *proxy, got chan string) {
	got = make(chan string, 16)
	b := serve(t, func(c *net.TCPConn) {
		all, err := io.ReadAll(c)
		if err != nil {
			t.Errorf("the backend read %d bytes, then %v", len(all), err)
		}
		got <- string(all)
	})
	return func(adjust ...func(*tcp.Route)) *proxy { return start(t, one(b), adjust...) }, got
}

// O-16: wherever a header is cut, and whatever comes glued to it.
func TestProxyHeaderInPieces(t *testing.T) {
	run, got := collect(t)
	p := run(trusting(wire.AcceptAny))
	payload := string(noise(5000))
	n := 0
	check := func(what string, pieces ...string) {
		t.Helper()
		c := p.dial()
		deliver(t, c, pieces...)
		c.CloseWrite()
		if s := <-got; s != payload {
			t.Errorf("%s: the backend got %d bytes", what, len(s))
		}
		io.ReadAll(c)
		n++
		s := p.ended(n)[n-1]
		if s.Flow.Client != theClient || s.Flow.VIP.String() != "198.51.100.9:443" || s.Peer.String() != c.LocalAddr().String() {
			t.Errorf("%s: flow %v, peer %v", what, s.Flow, s.Peer)
		}
		if s.BytesIn != uint64(len(payload)) {
			t.Errorf("%s: %d bytes in", what, s.BytesIn)
		}
	}
	for what, h := range map[string]string{
		"v1": proxyLine, "v2": header2(""), "v2 with 1500 bytes": header2(noop(1500)), "v2 of the largest size": header2(noop(65520)),
	} {
		check(what+" glued", h+payload)
		check(what+" apart", h, payload)
		for _, cut := range []int{1, 5, 12, 13, 14, 16, 20, 27} {
			check(what, h[:cut], h[cut:]+payload)
			check(what+" in three", h[:cut], h[cut:len(h)-1], h[len(h)-1:]+payload[:10], payload[10:])
		}
	}
	check("v1 in bytes", append(strings.Split(proxyLine, ""), payload)...)
	check("v2 in bytes", append(strings.Split(header2(""), ""), payload)...)
}

// O-16: what is no header reaches nobody.
func TestBadProxyHeader(t *testing.T) {
	run, got := collect(t)
	for what, c := range map[string]struct {
		accept wire.ProxyAccept
		sent   string
	}{
		"version nibble":  {wire.AcceptAny, signature + "\x11\x11\x00\x0c" + strings.Repeat("x", 12)},
		"endless line":    {wire.AcceptAny, "PROXY TCP4 " + strings.Repeat("1", 97)},
		"address":         {wire.AcceptAny, "PROXY TCP4 999.1.1.1 198.51.100.9 40000 443\r\n"},
		"port":            {wire.AcceptAny, "PROXY TCP4 192.0.2.7 198.51.100.9 70000 443\r\n"},
		"signature":       {wire.AcceptAny, signature[:11] + "x" + "\x21\x11\x00\x0c" + strings.Repeat("x", 12)},
		"none":            {wire.AcceptAny, "GET / HTTP/1.1\r\n\r\n"},
		"v2 where v1":     {wire.AcceptV1, header2("")},
		"v1 where v2":     {wire.AcceptV2, proxyLine},
		"broken fields":   {wire.AcceptAny, header2("\x04\x00\x09x")},
		"half, then FIN":  {wire.AcceptAny, proxyLine[:20]},
		"half, then FIN2": {wire.AcceptAny, header2("")[:20]},
	} {
		t.Run(what, func(t *testing.T) {
			p := run(trusting(c.accept))
			client := p.dial()
			deliver(t, client, c.sent)
			client.CloseWrite()
			if b, err := io.ReadAll(client); len(b) > 0 || err != nil && !isReset(err) {
				t.Errorf("%q, %v", b, err)
			}
			s := p.outcome(l4.BadProxyHeader)
			if s.Backend != "" || s.By != l4.Client {
				t.Errorf("%+v", s)
			}
			select {
			case b := <-got:
				t.Errorf("the backend got %q", b)
			default:
			}
		})
	}
}

// O-17: checks of other balancers are answered and not taken for a client.
func TestProxyLocal(t *testing.T) {
	const request = "GET /hc HTTP/1.1\r\nHost: x\r\n\r\n"
	run, got := collect(t)
	p := run(trusting(wire.AcceptAny))
	for i, h := range []string{
		signature + "\x20\x00\x00\x00",
		signature + "\x20\x11\x00\x0c" + strings.Repeat("\x00", 12),
		signature + "\x20\x11\x00\x18" + strings.Repeat("\x00", 12) + "\x04\x00\x09" + strings.Repeat("\x00", 9),
		"PROXY UNKNOWN\r\n",
		"PROXY UNKNOWN " + strings.Repeat("x", 91) + "\r\n",
	} {
		c := p.dial()
		deliver(t, c, h+request)
		c.CloseWrite()
		if s := <-got; s != request {
			t.Errorf("%q: the backend got %q", h, s)
		}
		io.ReadAll(c)
		s := p.ended(i + 1)[i]
		if s.Flow.Client.String() != c.LocalAddr().String() || s.Peer.IsValid() {
			t.Errorf("%q: client %v, peer %v", h, s.Flow.Client, s.Peer)
		}
	}
}

// O-18: who is not trusted cannot state anything; of two headers the second is payload.
func TestProxyTrust(t *testing.T) {
	run, got := collect(t)
	for what, c := range map[string]struct {
		trusted string
		sent    string
		payload string
		client  string // "" = the peer itself
	}{
		"untrusted v1": {"10.77.0.2/32", proxyLine + "hello", proxyLine + "hello", ""},
		"untrusted v2": {"10.77.0.2/32", header2("") + "hello", header2("") + "hello", ""},
		"two headers":  {"127.0.0.1/32", proxyLine + header2("") + "hello", header2("") + "hello", theClient.String()},
		"nobody":       {"", proxyLine + "hello", proxyLine + "hello", ""},
	} {
		t.Run(what, func(t *testing.T) {
			p := run(trusting(wire.AcceptAny), func(r *tcp.Route) {
				r.Spec.Proxy.Trusted = nil
				if c.trusted != "" {
					r.Spec.Proxy.Trusted = []netip.Prefix{netip.MustParsePrefix(c.trusted)}
				}
			})
			client := p.dial()
			deliver(t, client, c.sent)
			client.CloseWrite()
			if s := <-got; s != c.payload {
				t.Errorf("the backend got %q", s)
			}
			io.ReadAll(client)
			want := c.client
			if want == "" {
				want = client.LocalAddr().String()
			}
			if s := p.outcome(l4.OK); s.Flow.Client.String() != want {
				t.Errorf("the client is %v", s.Flow.Client)
			}
		})
	}
}

// A dual-stack listener shows an IPv4 peer as a mapped address.
func TestProxyTrustMapped(t *testing.T) {
	run, got := collect(t)
	p := run(trusting(wire.AcceptAny), func(r *tcp.Route) {
		r.Spec.Listen = []l4.Listen{{Addr: netip.AddrPortFrom(netip.IPv6Unspecified(), r.Spec.Listen[0].Addr.Port())}}
	})
	p.addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.route.Spec.Listen[0].Addr.Port()).String()
	c := p.dial()
	deliver(t, c, proxyLine+"hello")
	c.CloseWrite()
	if s := <-got; s != "hello" {
		t.Errorf("the backend got %q", s)
	}
	if s := p.outcome(l4.OK); s.Flow.Client != theClient {
		t.Errorf("the client is %v", s.Flow.Client)
	}
}

// The limit is for the whole beginning: bytes that trickle in do not extend it. It
// is in nobody else's way.
func TestFirstBytesIsTotal(t *testing.T) {
	p := start(t, one(echo(t)), trusting(wire.AcceptAny), func(r *tcp.Route) { r.Spec.FirstBytes = 600 * time.Millisecond })
	slow := p.dial()
	begun := time.Now()
	endless := signature + "\x21\x11\xff\xff"
	for i := 0; ; i++ {
		b := byte(0)
		if i < len(endless) {
			b = endless[i]
		}
		if _, err := slow.Write([]byte{b}); err != nil {
			break
		}
		if i == 2 { // others are served meanwhile
			c := p.dial()
			c.Write([]byte(proxyLine))
			if err := ping(c); err != nil {
				t.Error(err)
			}
			c.Close()
		}
		if time.Since(begun) > patience {
			t.Fatal("a byte now and then keeps it open")
		}
		time.Sleep(50 * time.Millisecond)
	}
	outcomes := map[l4.Outcome]int{}
	for _, s := range p.ended(2) {
		outcomes[s.Outcome]++
	}
	if outcomes[l4.FirstBytesTimeout] != 1 || outcomes[l4.OK] != 1 {
		t.Errorf("outcomes %v", outcomes)
	}
}

// A client that ends, or is reset, before it has said anything.
func TestGoneBeforeFirstByte(t *testing.T) {
	p := start(t, one(echo(t)), trusting(wire.AcceptAny))
	c := p.dial()
	c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	p.outcome(l4.OK)
	c = p.dial()
	c.Write([]byte("PROXY "))
	eventually(t, "the proxy to have it", func() bool { return len(p.Conns(1, "", "")) == 1 })
	reset(c)
	if s := p.ended(2)[1]; s.Outcome != l4.ClientReset {
		t.Errorf("outcome %v", s.Outcome)
	}
}

// What a client has sent while its backend is being connected to is not forgotten.
func TestPayloadWhileConnecting(t *testing.T) {
	run, got := collect(t)
	p := run(trusting(wire.AcceptAny))
	payload := noise(300_000)
	c := p.dial()
	if _, err := c.Write(append([]byte(proxyLine), payload...)); err != nil { // in one go: more than a front takes
		t.Fatal(err)
	}
	c.CloseWrite()
	if s := <-got; !bytes.Equal([]byte(s), payload) {
		t.Errorf("the backend got %d bytes", len(s))
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// The same without an end that would wake the relay up once more.
func TestPayloadBehindHeaderIsNotStuck(t *testing.T) {
	p := start(t, one(echo(t)), trusting(wire.AcceptAny))
	for _, size := range []int{1, 2002, 2048, 2049, 5000, 70_000} {
		payload := noise(size)
		c := p.dial()
		c.Write(append([]byte(proxyLine), payload...))
		got := make([]byte, size)
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%d bytes: %v", size, err)
		}
		c.Close()
	}
}
