package udp_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

// ports is a backend that answers with the port that it was asked from, by which a
// session is known.
func ports(t *testing.T, name string) *server {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{UDPConn: c.(*net.UDPConn)}
	s.SetReadBuffer(4 << 20)
	s.spec = balance.BackendSpec{Name: name, Weight: 100}
	s.spec.Addr.AddrPort = netip.MustParseAddrPort(c.LocalAddr().String())
	s.done.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := s.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			s.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %d %s", name, from.Port(), buf[:n]), from)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// A caller is one client that asks again and again, and what it has been told.
type caller struct {
	*net.UDPConn
	asked int
	ports map[string]int
	last  string
}

func (c *caller) ask() error {
	c.asked++
	what := fmt.Sprint(c.asked)
	if _, err := c.Write([]byte(what)); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 2048)
	n, err := c.Read(buf)
	if err != nil {
		return fmt.Errorf("question %d: %w", c.asked, err)
	}
	f := strings.Fields(string(buf[:n]))
	if len(f) != 3 || f[2] != what {
		return fmt.Errorf("question %d: %q", c.asked, buf[:n])
	}
	c.last = f[0] + " " + f[1]
	c.ports[c.last]++
	return nil
}

func call(addr netip.AddrPort) (*caller, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(addr))
	return &caller{UDPConn: c, ports: map[string]int{}}, err
}

// The listeners of one port, as a reload may change them.
func listens(port uint16, addrs string) (list []l4.Listen) {
	for _, a := range strings.Fields(addrs) {
		a, v6only := strings.CutSuffix(a, "(v6)")
		list = append(list, l4.Listen{Addr: netip.AddrPortFrom(netip.MustParseAddr(a), port), V6Only: v6only})
	}
	return list
}

// Whatever wildcard takes the place of an address or gives it back, new clients are
// answered from their first datagram on, and sessions stay what they are.
func TestListenerWidensAndNarrows(t *testing.T) {
	for client, steps := range map[string][]string{
		"127.0.0.1": {
			"127.0.0.1", "0.0.0.0", "127.0.0.1", "::", "127.0.0.1 ::1", "::", "0.0.0.0", "::", "0.0.0.0 ::(v6)", "::", "0.0.0.0", "127.0.0.1 127.0.0.2",
		},
		"::1": {"::1", "::", "::(v6)", "::", "::1", "::(v6) 0.0.0.0", "::1 127.0.0.1", "::(v6)", "::"},
	} {
		t.Run(client, func(t *testing.T) {
			port := freePort(t)
			at := netip.AddrPortFrom(netip.MustParseAddr(client), port)
			p := start(t, specs(ports(t, "a")), func(r *udp.Route) { r.Spec.Listen = listens(port, steps[0]) })
			var load sync.WaitGroup
			stop := make(chan struct{})
			var newcomers atomic.Int64
			var known sync.Map // a port may be given to two clients, one after the other
			const loyal = 8
			callers := make([]*caller, loyal)
			for i := range callers {
				c, err := call(at)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				callers[i] = c
				known.Store(c.LocalAddr().String(), true)
				load.Go(func() {
					for {
						if err := c.ask(); err != nil {
							t.Error(err)
							return
						}
						select {
						case <-stop:
							return
						default:
						}
					}
				})
			}
			for range 4 {
				load.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						c, err := call(at)
						if err == nil {
							err = c.ask()
							known.Store(c.LocalAddr().String(), true)
							c.Close()
						}
						if err != nil {
							t.Error("a new client: ", err)
							return
						}
						newcomers.Add(1)
					}
				})
			}
			pause := func() { // the load makes progress
				before := newcomers.Load()
				eventually(t, "new clients", func() bool { return newcomers.Load() > before+10 || t.Failed() })
			}
			for _, step := range steps[1:] {
				pause()
				r := p.route
				r.Spec.Listen = listens(port, step)
				c, err := p.Prepare([]udp.Route{r})
				if err != nil {
					t.Fatal(err)
				}
				pause()
				c.Abort()
				pause()
				p.run(r)
			}
			pause()
			close(stop)
			load.Wait()
			for i, c := range callers {
				// What comes in the moment between the binding of the workers' sockets
				// is the first one's, and a session there may be made for it.
				if others := c.asked - c.ports[c.last]; others > len(steps) {
					t.Errorf("client %d has had %d sessions: %v", i, len(c.ports), c.ports)
				}
			}
			want := 0
			known.Range(func(any, any) bool { want++; return true })
			if n := p.Active(); n < int64(want) || n > int64(want+want/20) {
				t.Errorf("%d sessions of %d clients", n, want)
			}
			t.Logf("%d clients", newcomers.Load())
		})
	}
}

// What a reload says of a new listener holds for clients that still reach the old one's
// sockets.
func TestListenerWidensWithNewSettings(t *testing.T) {
	port := freePort(t)
	p := start(t, specs(ports(t, "a")), func(r *udp.Route) { r.Spec.Listen = listens(port, "127.0.0.1") })
	pools := map[string]*balance.Pool{"a": p.pool}
	defer func(old *balance.Pool) { p.pool = old }(p.pool)
	for _, name := range []string{"b", "c"} {
		pools[name] = balance.New(balance.Spec{Name: name, Algorithm: "round-robin", Backends: specs(ports(t, name))}, nil)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	old, err := call(at)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	for i, step := range []string{"0.0.0.0 b", "127.0.0.1 c", ":: a", "127.0.0.1 b", ":: c", "0.0.0.0 a"} {
		f := strings.Fields(step)
		r := p.route
		r.Spec.Name = "service-" + f[1]
		r.Spec.Listen, r.Pool = listens(port, f[0]), pools[f[1]]
		p.run(r)
		fresh, err := call(at)
		if err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]*caller{"new": fresh, "old": old} {
			clear(c.ports)
			if err := c.ask(); err != nil {
				t.Fatal(err)
			}
			for from := range c.ports {
				if !strings.HasPrefix(from, f[1]+" ") {
					t.Errorf("step %d, %s: a client that is %s is served by %s", i, step, what, from)
				}
			}
		}
		fresh.Close()
	}
}

// A service that gets another name keeps its sessions, as connections are kept.
func TestServiceRenamed(t *testing.T) {
	p := start(t, specs(ports(t, "a"), ports(t, "b")))
	c, err := call(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"service", "renamed", "renamed again"} {
		r := p.route
		r.Spec.Name = name
		p.run(r)
		for range 3 {
			if err := c.ask(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(c.ports) != 1 {
		t.Errorf("it has had %d sessions: %v", len(c.ports), c.ports)
	}
}
