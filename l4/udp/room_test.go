package udp_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

// greeter answers those that say hello, which invented clients do not.
func greeter(t *testing.T) *server {
	return serve(t, "a", "127.0.0.1:0", func(b []byte) []byte {
		if string(b) != "hello" {
			return nil
		}
		return b
	})
}

// flood sends one datagram from each of n clients.
func (p *proxy) flood(n int) {
	p.t.Helper()
	for range n {
		c := p.dial()
		c.Write([]byte("x"))
		c.Close() // a later one may have its port: then it is no new client
	}
}

// attempts is how many new clients have been served or refused.
func attempts(st *udp.ServiceStats) int {
	n := st.Sessions.Load()
	for o := range l4.NumOutcomes {
		if l4.Outcome(o).Refused() {
			n += st.Outcomes[o].Load()
		}
	}
	return int(n)
}

// Whoever takes all places from invented addresses keeps no real client out, and
// costs none its session.
func TestInventedClientsGiveWay(t *testing.T) {
	p := start(t, specs(greeter(t)), func(r *udp.Route) { r.Spec.MaxSessions = 44 })
	var old []*net.UDPConn
	for range 4 {
		c := p.dial()
		ask(t, c, "hello")
		old = append(old, c)
	}
	p.flood(60)
	eventually(t, "every place to be taken", func() bool { return p.Active() == 44 })
	p.flood(60)
	for range 3 {
		ask(t, p.dial(), "hello")
	}
	for _, c := range old {
		ask(t, c, "hello")
	}
	kept := 0
	for _, s := range p.Conns(1000, "", "") {
		for _, c := range old {
			if s.Flow.Client.String() == c.LocalAddr().String() && s.DatagramsIn == 2 && s.State == "open" {
				kept++
			}
		}
	}
	if kept != len(old) || p.Active() > 44 {
		t.Errorf("%d of %d sessions kept, %d open", kept, len(old), p.Active())
	}
}

// The same of the ports, where the invented clients' sessions end at once: what one
// backend may still reply to can be used towards another.
func TestInventedClientsGiveUpPorts(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50159") // of which sessions have 120, towards each backend
	hello := func(b []byte) []byte {
		if string(b) != "hello" {
			return nil
		}
		return b
	}
	// One loop: a newcomer can have the place of its own loop's sessions only, and the
	// kernel spreads clients over loops by chance.
	p := startOn(t, 1, specs(serve(t, "a", "127.0.0.1:9000", hello), serve(t, "b", "127.0.0.1:9002", hello)), fromElsewhere)
	st := p.stats()
	for i := range 200 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)}))
		c.Write([]byte("x"))
		eventually(t, "the datagram to be served or dropped", func() bool { return attempts(st) == i+1 })
	}
	if n := st.Outcomes[l4.NoLocalPort].Load(); n != 0 || p.Active() != 120 {
		t.Errorf("%d were refused, %d sessions", n, p.Active())
	}
	for i := range 20 {
		ask(t, p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 2, byte(1 + i)})), "hello")
	}
}

// fewPorts limits the range that the kernel chooses local ports from.
func fewPorts(t *testing.T, ports string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(ports), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fromElsewhere has sessions use ports of an address of their own, which clients' do
// not count with.
func fromElsewhere(r *udp.Route) {
	r.Source = netip.MustParseAddr("127.0.0.9")
	r.Spec.Listen[0].Addr = netip.MustParseAddrPort("127.0.0.1:9001")
}

// When a backend goes its sessions leave, and what they hold goes to those that take
// their place.
func TestFailoverNeedsNoMorePorts(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50031") // of which sessions have 24
	a, b := named(t, "a"), named(t, "b")
	p := start(t, specs(a), fromElsewhere)
	var clients []*net.UDPConn
	for i := range 20 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(11 + i)}))
		if got := ask(t, c, "x"); got != "a" {
			t.Fatalf("got %q", got)
		}
		clients = append(clients, c)
	}
	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "round-robin", Backends: specs(b)})
	for i, c := range clients {
		if got := ask(t, c, "x"); got != "b" {
			t.Fatalf("client %d got %q", i, got)
		}
	}
}

// The replies of a slow backend find their own client after its session has ended,
// whatever it waits for: nobody else gets the port before.
func TestRepliesAfterTheEnd(t *testing.T) {
	for _, c := range []struct {
		name     string
		at, late []string // datagrams that are answered at once, and after the end
		want     l4.Outcome
	}{
		{"no reply yet", nil, []string{"late"}, l4.Idle},
		{"asked again", []string{"soon"}, []string{"late"}, l4.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := make(chan struct{})
			back := serve(t, "a", "127.0.0.1:0", func(b []byte) []byte {
				if string(b) == "late" {
					<-gate
				}
				return b
			})
			release := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(release) // or the backend would never stop
			p := start(t, specs(back), func(r *udp.Route) { r.Spec.Idle = 300 * time.Millisecond })
			conn := p.dial()
			for _, q := range c.at {
				ask(t, conn, q)
			}
			for _, q := range c.late {
				conn.Write([]byte(q))
			}
			st := p.stats()
			eventually(t, "the session to be over", func() bool { return st.Sessions.Load() == 1 && p.Active() == 0 })
			release()
			for _, q := range c.late {
				if got := reply(t, conn); got != q {
					t.Errorf("got %q, want %q", got, q)
				}
			}
			s := p.ended(1)[0]
			if n := uint64(len(c.at) + len(c.late)); s.Outcome != c.want || s.DatagramsIn != n || s.DatagramsOut != n {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The same if it has answered, and replies are due nevertheless. With the last of them
// nothing is left to wait for.
func TestReplyDueAfterTheEnd(t *testing.T) {
	back, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	back.SetDeadline(time.Now().Add(patience))
	p := start(t, backendAt("a", back.LocalAddr()), short, func(r *udp.Route) { r.Spec.Replies = 2 })
	c := p.dial()
	c.Write([]byte("x"))
	_, from, err := back.ReadFromUDPAddrPort(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	back.WriteToUDPAddrPort([]byte("first"), from)
	reply(t, c)
	eventually(t, "the session to be over", func() bool { return p.Active() == 0 })
	back.WriteToUDPAddrPort([]byte("second"), from)
	if got := reply(t, c); got != "second" {
		t.Errorf("got %q", got)
	}
	if s := p.ended(1)[0]; s.Outcome != l4.OK || s.DatagramsOut != 2 {
		t.Errorf("%+v", s)
	}
}

// Who has been answered is not waited for.
func TestAnsweredSessionEndsAtOnce(t *testing.T) {
	p := start(t, specs(echo(t, "a")), short)
	before := descriptors(t)
	for i := range 3 {
		ask(t, p.dial(), fmt.Sprint(i))
	}
	st := p.stats()
	eventually(t, "the sessions to be over", func() bool { return st.Sessions.Load() == 3 && p.Active() == 0 })
	if n := len(p.Conns(10, "", "")); n != 0 || descriptors(t) != before+3 {
		t.Errorf("%d sessions, %d descriptors more", n, descriptors(t)-before-3)
	}
}
