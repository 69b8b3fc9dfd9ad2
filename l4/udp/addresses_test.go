package udp_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/udp"
)

// on has the service listen on an address, with a port of its own.
func on(t *testing.T, addr string, v6only bool) func(*udp.Route) {
	return func(r *udp.Route) {
		r.Spec.Listen = []l4.Listen{{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), freePort(t)), V6Only: v6only}}
	}
}

// Case O-22: a reply comes from the address that was asked. A connected socket sees
// no other.
func TestRepliesComeFromTheAddressAsked(t *testing.T) {
	for _, c := range []struct {
		listen string
		v6only bool
		ask    []string
	}{
		{"0.0.0.0", false, []string{"127.0.0.1", "127.0.0.11", "127.0.0.12", "127.9.8.7"}},
		{"::", false, []string{"127.0.0.1", "127.0.0.11", "127.0.0.12", "::1"}}, // dual stack
		{"::", true, []string{"::1"}},
		{"::1", true, []string{"::1"}},
		{"127.0.0.11", false, []string{"127.0.0.11"}},
	} {
		t.Run(fmt.Sprintf("%s v6only %v", c.listen, c.v6only), func(t *testing.T) {
			p := start(t, specs(echo(t, "a")), on(t, c.listen, c.v6only))
			for _, a := range c.ask {
				addr := netip.AddrPortFrom(netip.MustParseAddr(a), p.addr.Port())
				conn := p.dial(addr)
				for i := range 20 {
					q := fmt.Sprintf("%s %d", a, i)
					if got := ask(t, conn, q); got != q {
						t.Fatalf("asked %s: got %q", a, got)
					}
				}
			}
			if n := p.Active(); int(n) != len(c.ask) {
				t.Errorf("%d sessions of %d clients", n, len(c.ask))
			}
			for _, conn := range p.Conns(10, "", "") {
				want := netip.MustParseAddr(conn.Flow.VIP.Addr().String())
				if conn.Flow.VIP != netip.AddrPortFrom(want, p.addr.Port()) || want.IsUnspecified() || conn.Flow.Client.Addr().Is4In6() {
					t.Errorf("flow %v", conn.Flow)
				}
			}
		})
	}
}

// What is sent to all is answered from an address of this host.
func TestBroadcast(t *testing.T) {
	for _, listen := range []string{"0.0.0.0", "::"} {
		p := start(t, specs(echo(t, "a")), on(t, listen, false))
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		all := netip.AddrPortFrom(netip.MustParseAddr("127.255.255.255"), p.addr.Port())
		if _, err := c.WriteToUDPAddrPort([]byte("anybody?"), all); err != nil {
			t.Fatal(err)
		}
		n, from, err := c.ReadFromUDPAddrPort(make([]byte, 100))
		if err != nil || n != 8 || from.Addr() == all.Addr() || from.Port() != p.addr.Port() {
			t.Errorf("%s: %d bytes from %v: %v", listen, n, from, err)
		}
	}
}

// The other half of O-22: one socket that asks two addresses in turn has a session at
// each, and tells the replies apart by where they come from.
func TestOneSocketAsksTwoAddresses(t *testing.T) {
	p := start(t, specs(echo(t, "a")), on(t, "0.0.0.0", false))
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	addrs := []netip.AddrPort{
		netip.AddrPortFrom(netip.MustParseAddr("127.0.0.11"), p.addr.Port()),
		netip.AddrPortFrom(netip.MustParseAddr("127.0.0.12"), p.addr.Port()),
	}
	buf := make([]byte, 100)
	for i := range 40 {
		to := addrs[i%2]
		q := fmt.Sprintf("%v %d", to, i)
		if _, err := c.WriteToUDPAddrPort([]byte(q), to); err != nil {
			t.Fatal(err)
		}
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		if from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); from != to || string(buf[:n]) != q {
			t.Fatalf("asked %v: %q from %v", to, buf[:n], from)
		}
	}
	if n := p.Active(); n != 2 {
		t.Errorf("%d sessions", n)
	}
}

func TestSourceAddress(t *testing.T) {
	source := netip.MustParseAddr("127.9.8.7")
	back := echo(t, "a")
	p := start(t, specs(back), func(r *udp.Route) { r.Source = source })
	ask(t, p.dial(), "x")
	back.mu.Lock()
	defer back.mu.Unlock()
	for from := range back.from {
		if from.Addr().Unmap() != source {
			t.Errorf("the backend was asked from %v", from)
		}
	}
}

// The backend sees the client's own address, but for a client of the other IP version.
func TestTransparent(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root for IP_TRANSPARENT")
	}
	back := echo(t, "a")
	p := start(t, specs(back), on(t, "::", false), func(r *udp.Route) {
		r.Transparent, r.Source = true, netip.MustParseAddr("127.9.8.7")
	})
	p.addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.addr.Port())
	client := netip.MustParseAddr("127.0.0.55")
	ask(t, p.dialFrom(client), "x")
	ask(t, p.dial(netip.AddrPortFrom(netip.IPv6Loopback(), p.addr.Port())), "x")
	back.mu.Lock()
	defer back.mu.Unlock()
	seen := map[netip.Addr]bool{}
	for from := range back.from {
		seen[from.Addr().Unmap()] = true
	}
	if len(seen) != 2 || !seen[client] || !seen[p.route.Source] {
		t.Errorf("the backend has seen %v", seen)
	}
}

func TestIPv6Backend(t *testing.T) {
	back := serve(t, "six", "[::1]:0", func(b []byte) []byte { return b })
	p := start(t, specs(back))
	if got := ask(t, p.dial(), "x"); got != "x" {
		t.Errorf("got %q", got)
	}
}
