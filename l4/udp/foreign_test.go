package udp_test

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

// slow is a backend that sends each datagram back after some time: as many milliseconds
// as its last byte says.
func slow(t *testing.T, name, addr string) *server {
	t.Helper()
	var s *server
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s = &server{UDPConn: c.(*net.UDPConn), from: map[netip.AddrPort]int{}}
	s.spec = balance.BackendSpec{Name: name, Weight: 100}
	s.spec.Addr.AddrPort = netip.MustParseAddrPort(c.LocalAddr().String())
	s.done.Go(func() {
		var replies sync.WaitGroup
		defer replies.Wait()
		buf := make([]byte, 65536)
		for {
			n, from, err := s.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			b := slices.Clone(buf[:n])
			replies.Go(func() {
				time.Sleep(time.Duration(b[n-1]) * time.Millisecond)
				s.WriteToUDPAddrPort(b, from)
			})
		}
	})
	t.Cleanup(s.stop)
	return s
}

// question is a datagram that only its client asks, to be answered after so many
// milliseconds.
func question(client, n int, after byte) []byte {
	return append(fmt.Appendf(nil, "client %d asks %d ", client, n), after)
}

// hears returns what has come to a client that is not its own, and how much has come.
func hears(c *net.UDPConn, client int, wait time.Duration) (foreign []string, n int) {
	buf := make([]byte, 1<<16)
	c.SetReadDeadline(time.Now().Add(wait))
	for {
		size, err := c.Read(buf)
		if err != nil {
			return foreign, n
		}
		n++
		if got := string(buf[:size]); !strings.HasPrefix(got, fmt.Sprintf("client %d ", client)) {
			foreign = append(foreign, fmt.Sprintf("client %d got %q", client, got))
		}
	}
}

// Those that come when every port waits for a reply are dropped and counted; those who
// wait get their own. Issue 8: 3 to 8 of the second 15 got what was meant for others.
func TestPortsThatWaitAreNotGivenAway(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50019") // of which sessions have 15
	for _, replies := range []int{0, 1} {
		t.Run(fmt.Sprintf("replies %d", replies), func(t *testing.T) {
			p := start(t, specs(slow(t, "a", "127.0.0.1:9000")), fromElsewhere, func(r *udp.Route) {
				r.Spec.Replies, r.Spec.Idle = replies, 5*time.Second
			})
			var clients []*net.UDPConn
			st := p.stats()
			for i := range 30 {
				c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)}))
				c.Write(question(i, 0, 255))
				clients = append(clients, c)
				if i%15 == 14 {
					eventually(t, "a wave to have come", func() bool { return attempts(st) == i+1 })
				}
			}
			if n := st.Outcomes[l4.NoLocalPort].Load(); n != 15 {
				t.Errorf("%d of 30 were refused", n)
			}
			if n := st.Dropped[udp.DropRefused].Load(); n != 15 {
				t.Errorf("%d of 30 were dropped", n)
			}
			for i, c := range clients[:15] {
				if got := reply(t, c); got != string(question(i, 0, 255)) {
					t.Errorf("client %d got %q", i, got)
				}
			}
			for i, c := range clients {
				if foreign, n := hears(c, i, time.Millisecond); n != 0 {
					t.Error(n, foreign)
				}
			}
		})
	}
}

// Whatever happens, in whatever order, no client gets what is meant for another: when
// clients come, come back, sessions have to make room for ports or for places, are idle,
// killed, closed with their backend, moved by its state or by a reload.
func TestNoForeignReplies(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50015") // of which sessions have 12
	addrs := []string{"127.0.0.1:9000", "127.0.0.1:9002", "127.0.0.1:9003"}
	backends := make([]*server, len(addrs))
	for i, a := range addrs {
		backends[i] = slow(t, fmt.Sprint("b", i), a)
	}
	p := start(t, specs(backends...), fromElsewhere)
	clients, asked := map[int]*net.UDPConn{}, 0
	heard := 0
	check := func(fail func(string, ...any), wait time.Duration) {
		for i, c := range clients {
			foreign, n := hears(c, i, wait)
			heard += n
			if len(foreign) > 0 {
				fail("%s", foreign)
			}
			wait = time.Microsecond
		}
	}
	begin := time.Now()
	next := 0
	rapid.Check(t, func(rt *rapid.T) {
		if time.Since(begin) > 4*time.Second {
			return // what was tried in this time has to do
		}
		spec := &p.route.Spec
		spec.Idle = time.Duration(rapid.SampledFrom([]int{20, 100, 1000}).Draw(rt, "idle")) * time.Millisecond
		spec.Replies = rapid.IntRange(0, 1).Draw(rt, "replies")
		spec.Retry = spec.Replies > 0 && rapid.Bool().Draw(rt, "retry")
		spec.MaxSessions = rapid.SampledFrom([]int{0, 8}).Draw(rt, "max_sessions")
		p.run(p.route)
		ids := make([]balance.BackendID, 0, len(backends))
		for _, b := range p.pool.Backends() {
			ids = append(ids, b.ID())
		}
		rt.Repeat(map[string]func(*rapid.T){
			"come": func(rt *rapid.T) {
				for range rapid.IntRange(1, 12).Draw(rt, "clients") {
					c := p.dialFrom(netip.AddrFrom4([4]byte{127, 1, byte(next >> 8), byte(next)}))
					clients[next] = c
					asked++
					c.Write(question(next, asked, byte(rapid.IntRange(0, 250).Draw(rt, "after"))))
					next++
				}
			},
			"come back": func(rt *rapid.T) {
				if len(clients) == 0 {
					return
				}
				i := rapid.SampledFrom(slices.Sorted(maps.Keys(clients))).Draw(rt, "client")
				asked++
				clients[i].Write(question(i, asked, byte(rapid.IntRange(0, 250).Draw(rt, "after"))))
			},
			"wait": func(rt *rapid.T) {
				time.Sleep(time.Duration(rapid.IntRange(0, 40).Draw(rt, "ms")) * time.Millisecond)
			},
			"down": func(rt *rapid.T) {
				i, is := rapid.IntRange(0, len(ids)-1).Draw(rt, "backend"), rapid.Bool().Draw(rt, "is")
				p.pool.SetFlag(ids[i], balance.Down, is)
				if is {
					p.Repeat(p.pool.Backends()[i])
				}
			},
			"kill": func(*rapid.T) { p.Kill(l4.Killed) },
			"close": func(rt *rapid.T) {
				p.CloseBackend(rapid.SampledFrom(p.pool.Backends()).Draw(rt, "backend"), l4.Drained, 0)
			},
			"source": func(rt *rapid.T) { // one after the other: sessions move, and ports with them
				p.route.Source = netip.MustParseAddr(rapid.SampledFrom([]string{"127.0.0.9", "127.0.0.1"}).Draw(rt, "source"))
				p.run(p.route)
			},
			"listener": func(rt *rapid.T) {
				if rapid.Bool().Draw(rt, "gone") {
					p.run()
				}
				p.run(p.route)
			},
			"": func(rt *rapid.T) { check(rt.Fatalf, time.Microsecond) },
		})
	})
	time.Sleep(300 * time.Millisecond) // the slowest reply, so that all that comes has come
	check(t.Errorf, time.Millisecond)
	if heard == 0 {
		t.Error("nobody was answered")
	}
	t.Logf("%d questions, %d repeated, %d answers", asked, p.stats().Retries.Load(), heard)
}

// What a backend answers to a check that has given up does not reach a client.
func TestPortsOfChecksAreNotGivenAway(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50019")
	p := start(t, specs(slow(t, "a", "127.0.0.1:9000")), fromElsewhere)
	backend := netip.MustParseAddrPort("127.0.0.1:9000")
	var checks []*net.UDPConn
	for range 15 {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.route.Source, 0)), net.UDPAddrFromAddrPort(backend))
		if err != nil {
			t.Fatal(err)
		}
		c.Write(append([]byte("check "), 255))
		local := c.LocalAddr().(*net.UDPAddr).AddrPort()
		if p.Server.Rests(local, backend) {
			t.Errorf("%s rests before it is asked from", local)
		}
		p.Server.Rest(local, backend)
		if !p.Server.Rests(local, backend) {
			t.Errorf("%s does not rest", local)
		}
		checks = append(checks, c)
	}
	for _, c := range checks {
		c.Close()
	}
	var clients []*net.UDPConn
	for i := range 15 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)}))
		c.Write(question(i, 0, 1))
		clients = append(clients, c)
	}
	answered := 0
	for i, c := range clients {
		foreign, n := hears(c, i, 500*time.Millisecond/time.Duration(1+i))
		answered += n
		if len(foreign) > 0 {
			t.Error(foreign)
		}
	}
	if answered == 0 {
		t.Error("no client is answered")
	}
}
