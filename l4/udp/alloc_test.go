package udp_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

// plain is an echo that allocates nothing itself.
func plain(t *testing.T, answers bool) []balance.BackendSpec {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if answers {
				c.WriteToUDPAddrPort(buf[:n], from)
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return backendAt("a", c.LocalAddr())
}

// A datagram costs no allocation, neither there nor back, by no way.
func TestDatagramsAllocateNothing(t *testing.T) {
	for name, adjust := range map[string]func(*udp.Route){
		"sessions": func(*udp.Route) {},
		"sessions that are kept for another backend": func(r *udp.Route) { r.Spec.Replies, r.Spec.Retry = 1000, true },
		"PROXY each":       func(r *udp.Route) { r.SendProxy = udp.ProxyEach },
		"spray":            spray,
		"spray PROXY each": func(r *udp.Route) { r.Spec.Spray, r.SendProxy = true, udp.ProxyEach },
	} {
		t.Run(name, func(t *testing.T) {
			back := plain(t, !strings.HasPrefix(name, "spray"))
			p := start(t, back, on(t, "0.0.0.0", false), adjust)
			at := p.addr
			c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(at.Port())})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			payload, buf := make([]byte, 64), make([]byte, 2048)
			const burst = 20 // some singly, some as trains
			exchange := func() {
				for range burst {
					c.Write(payload)
				}
				if p.route.Spec.Spray {
					return
				}
				for range burst {
					if _, err := c.Read(buf); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 20 {
				exchange()
			}
			if n := testing.AllocsPerRun(100, exchange); n >= 2 { // of 20 datagrams; the runtime may have some of its own
				t.Errorf("%v allocations for %d datagrams", n, burst)
			}
		})
	}
}
