package udp_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

func short(r *udp.Route) { r.Spec.Idle = 50 * time.Millisecond }

// Silence is the end of a session: in order if the backend has ever answered.
func TestIdle(t *testing.T) {
	for _, c := range []struct {
		back *server
		want l4.Outcome
	}{{echo(t, "a"), l4.OK}, {sink(t, "b"), l4.Idle}} {
		p := start(t, specs(c.back), short)
		conn := p.dial()
		conn.Write([]byte("hello"))
		s := p.ended(1)[0]
		if by := s.By; c.want == l4.Idle && by != l4.Backend {
			t.Errorf("a backend that never answered: by %v", by)
		}
		if s.Outcome != c.want || s.Backend != c.back.spec.Name || s.Service != "service" || s.Pool != "pool" {
			t.Errorf("%+v, want %v", s, c.want)
		}
		if s.Total < 50*time.Millisecond || s.DatagramsIn != 1 || s.BytesIn != 5 || s.Flow.Proto != l4.UDP ||
			s.Flow.Client.String() != conn.LocalAddr().String() || s.Flow.VIP != p.addr {
			t.Errorf("%+v", s)
		}
		if answered := s.FirstByte != l4.Unreached; answered != (c.want == l4.OK) || answered && s.DatagramsOut != 1 {
			t.Errorf("first reply after %v, %d replies", s.FirstByte, s.DatagramsOut)
		}
		eventually(t, "the client to be forgotten", func() bool { return p.Active() == 0 })
		// It is a client like any other when it comes back.
		conn.Write([]byte("again"))
		p.ended(2)
	}
}

// Datagrams in either direction keep a session.
func TestActivityKeepsSession(t *testing.T) {
	const idle = 300 * time.Millisecond
	back, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	back.SetDeadline(time.Now().Add(patience))
	p := start(t, backendAt("a", back.LocalAddr()), func(r *udp.Route) { r.Spec.Idle = idle })
	c := p.dial()
	c.Write([]byte("hello"))
	_, from, err := back.ReadFromUDPAddrPort(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < 3*idle; time.Sleep(idle / 20) {
		back.WriteToUDPAddrPort([]byte("tick"), from)
		reply(t, c)
	}
	for begun := time.Now(); time.Since(begun) < 3*idle; time.Sleep(idle / 20) {
		c.Write([]byte("tock"))
		if _, f, err := back.ReadFromUDPAddrPort(make([]byte, 10)); err != nil || f != from {
			t.Fatalf("from %v, was %v: %v", f, from, err)
		}
	}
}

// With replies: 1 each datagram is answered once. What is outstanding keeps the
// session, and a further datagram in time does.
func TestReplies(t *testing.T) {
	gate := make(chan struct{}, 100)
	back := serve(t, "a", "127.0.0.1:0", func(b []byte) []byte { <-gate; return b })
	p := start(t, specs(back), func(r *udp.Route) { r.Spec.Replies = 1 })
	c := p.dial()
	for i := range 5 {
		fmt.Fprint(c, i)
	}
	for i := range 5 {
		gate <- struct{}{}
		if got := reply(t, c); got != fmt.Sprint(i) {
			t.Errorf("reply %d: %q", i, got)
		}
		if n := len(p.sessionsSoFar()); i < 4 && n != 0 {
			t.Errorf("the session has ended after %d of 5 replies", i+1)
		}
	}
	s := p.ended(1)[0]
	if s.Outcome != l4.OK || s.By != l4.Backend || s.DatagramsIn != 5 || s.DatagramsOut != 5 {
		t.Errorf("%+v", s)
	}
	gate <- struct{}{}
	ask(t, c, "next")
	p.ended(2)
}

func TestMaxSessions(t *testing.T) {
	p := start(t, specs(echo(t, "a")), func(r *udp.Route) { r.Spec.MaxSessions = 3 })
	for range 3 {
		ask(t, p.dial(), "x")
	}
	c := p.dial()
	for range 5 {
		c.Write([]byte("too many"))
	}
	st := p.stats()
	eventually(t, "the refusals", func() bool { return st.Outcomes[l4.RefusedLimit].Load() == 5 })
	if n := st.Dropped[udp.DropRefused].Load(); n != 5 || p.Active() != 3 {
		t.Errorf("%d dropped, %d sessions", n, p.Active())
	}
	p.Kill(l4.Killed)
	eventually(t, "room", func() bool { return p.Active() == 0 })
	ask(t, c, "x")
}

// A session that is moved to another backend is not one more.
func TestMovingNeedsNoRoom(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	policy, err := admit.New(admit.Spec{PerSource: 1, SourceRate: 0.001, Mask4: 32, Mask6: 128}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, specs(a, b), func(r *udp.Route) { r.Spec.MaxSessions, r.Admit = 1, policy })
	c := p.dial()
	first := ask(t, c, "x")
	for _, s := range []*server{a, b} {
		if s.spec.Name == first {
			p.pool.SetFlag(balance.BackendID{Name: first, Addr: s.spec.Addr}, balance.Down, true)
		}
	}
	if got := ask(t, c, "x"); got == first {
		t.Errorf("%s is down", got)
	}
	if p.Active() != 1 {
		t.Errorf("%d sessions", p.Active())
	}
}

func TestBackendLimit(t *testing.T) {
	back := echo(t, "a")
	back.spec.MaxConnections = 2
	p := start(t, specs(back))
	ask(t, p.dial(), "x")
	ask(t, p.dial(), "x")
	p.dial().Write([]byte("x"))
	st := p.stats()
	eventually(t, "the refusal", func() bool { return st.Outcomes[l4.RefusedLimit].Load() == 1 })
}

// Admission is asked when a session begins, and told when it ends.
func TestAdmission(t *testing.T) {
	denied := netip.MustParsePrefix("127.0.0.66/32")
	policy, err := admit.New(admit.Spec{Deny: []netip.Prefix{denied}, PerSource: 2, Mask4: 32, Mask6: 128}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, specs(echo(t, "a")), func(r *udp.Route) { r.Admit = policy })
	from := func(a string) *net.UDPConn { return p.dialFrom(netip.MustParseAddr(a)) }
	st := p.stats()
	from("127.0.0.66").Write([]byte("x"))
	eventually(t, "the denial", func() bool { return st.Outcomes[l4.RefusedACL].Load() == 1 })
	for round := range 3 {
		for range 2 {
			c := from("127.0.0.77")
			ask(t, c, "x")
			ask(t, c, "x") // one session, admitted once
		}
		from("127.0.0.77").Write([]byte("x"))
		eventually(t, "the limit", func() bool { return st.Outcomes[l4.RefusedLimit].Load() == uint64(round+1) })
		ask(t, from("127.0.0.78"), "x")
		p.Kill(l4.Killed)
		eventually(t, "the end", func() bool { return p.Active() == 0 })
	}
}

// The policy is asked before the service's limit: who is on a list is told so, and
// what the limit refuses uses up nothing.
func TestLimitComesLast(t *testing.T) {
	denied := netip.MustParseAddr("127.0.0.9")
	policy, err := admit.New(admit.Spec{Deny: []netip.Prefix{netip.PrefixFrom(denied, 32)}, PerSource: 2, Mask4: 32, Mask6: 128}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, specs(echo(t, "a")), func(r *udp.Route) { r.Admit, r.Spec.MaxSessions = policy, 1 })
	ask(t, p.dial(), "x")
	st := p.stats()
	p.dialFrom(denied).Write([]byte("x"))
	eventually(t, "the denial", func() bool { return st.Outcomes[l4.RefusedACL].Load() == 1 })
	for i := range 5 {
		p.dial().Write([]byte("x"))
		eventually(t, "the limit", func() bool { return st.Outcomes[l4.RefusedLimit].Load() == uint64(i+1) })
	}
	p.Kill(l4.Killed)
	eventually(t, "the end", func() bool { return p.Active() == 0 })
	p.Flush() // every loop has heard
	ask(t, p.dial(), "x")
}

// Without a backend nobody is admitted: clients that try on must not use up their
// rate.
func TestNoBackendCostsNoRate(t *testing.T) {
	policy, err := admit.New(admit.Spec{SourceRate: 0.001, Mask4: 32, Mask6: 128}, nil)
	if err != nil {
		t.Fatal(err)
	}
	back := echo(t, "a")
	p := start(t, specs(back), func(r *udp.Route) { r.Admit = policy })
	id := balance.BackendID{Name: "a", Addr: back.spec.Addr}
	p.pool.SetFlag(id, balance.Down, true)
	c := p.dial()
	for range 20 {
		c.Write([]byte("x"))
	}
	st := p.stats()
	eventually(t, "the refusals", func() bool { return st.Outcomes[l4.NoBackend].Load() == 20 })
	p.pool.SetFlag(id, balance.Down, false)
	ask(t, c, "x")
}

// Every client gets its own replies and no other's, whatever comes and goes.
func TestManyClientsAtOnce(t *testing.T) {
	p := start(t, specs(echo(t, "a"), echo(t, "b"), echo(t, "c")), on(t, "0.0.0.0", false), func(r *udp.Route) { r.Spec.Replies = 1 })
	const clients, rounds, window = 40, 10, 8
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), p.addr.Port())
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			buf := make([]byte, 100)
			for round := range rounds {
				want := map[string]bool{}
				for k := range window {
					q := fmt.Sprintf("client %d round %d question %d", i, round, k)
					want[q] = true
					c.Write([]byte(q))
				}
				for range window {
					n, err := c.Read(buf)
					if err != nil {
						t.Errorf("client %d: %v", i, err)
						return
					}
					if !want[string(buf[:n])] {
						t.Errorf("client %d round %d got %q", i, round, buf[:n])
					}
					delete(want, string(buf[:n]))
				}
			}
		})
	}
	all.Wait()
	eventually(t, "all to be over", func() bool { return p.Active() == 0 })
	st := p.stats()
	if in, out := st.DatagramsIn.Load(), st.DatagramsOut.Load(); in != clients*rounds*window || out != in {
		t.Errorf("%d in, %d out", in, out)
	}
	if ok, all := st.Outcomes[l4.OK].Load(), st.Sessions.Load(); ok != all {
		t.Errorf("%d of %d sessions ended well", ok, all)
	}
}

// A backend that takes nothing, and a client that floods it, keep nobody else waiting.
func TestStalledBackendDelaysNobody(t *testing.T) {
	stalled, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	p := start(t, append(backendAt("stalled", stalled.LocalAddr()), echo(t, "a").spec))
	flooder, asker := p.dial(), p.dial()
	flooder.Write([]byte("x"))
	asker.Write([]byte("x"))
	eventually(t, "both sessions", func() bool { return p.Active() == 2 })
	for _, c := range p.Conns(2, "pool", "stalled") {
		if c.Flow.Client.String() == asker.LocalAddr().String() {
			flooder, asker = asker, flooder
		}
	}
	reply(t, asker)
	block := make([]byte, 8000)
	for i := range 500 {
		for range 20 {
			flooder.Write(block)
		}
		if q := fmt.Sprint(i); ask(t, asker, q) != q {
			t.Fatal("a wrong answer")
		}
	}
}

// Who is hashed by source stays with one backend, from any port.
func TestConsistentHash(t *testing.T) {
	var backs []*server
	for _, name := range []string{"a", "b", "c", "d"} {
		backs = append(backs, named(t, name))
	}
	p := start(t, specs(backs...))
	p.pool.Update(balance.Spec{
		Name: "pool", Algorithm: "maglev", Backends: specs(backs...),
		Hash: balance.HashSpec{Mask4: 32, Mask6: 128},
	})
	seen := map[string]bool{}
	for i := range 16 {
		first := ""
		for range 4 {
			got := ask(t, p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(10 + i)})), "x")
			if first == "" {
				first = got
			} else if got != first {
				t.Errorf("source %d: %s, then %s", i, first, got)
			}
		}
		seen[first] = true
	}
	if len(seen) < 2 {
		t.Errorf("16 sources all went to %v", seen)
	}
}

// A backend that has answered and then is gone has failed its client.
func TestIdleAfterRefusal(t *testing.T) {
	back := echo(t, "a")
	p := start(t, specs(back), func(r *udp.Route) { r.Spec.Idle = 300 * time.Millisecond })
	conn := p.dial()
	ask(t, conn, "hello")
	back.stop()
	conn.Write([]byte("anybody?"))
	if s := p.ended(1)[0]; s.Outcome != l4.Idle || s.By != l4.Backend {
		t.Errorf("%v by %v", s.Outcome, s.By)
	}
}

// Each datagram of a train is one that was refused, and the reason is counted as often.
func TestRefusedTrain(t *testing.T) {
	dead := sink(t, "a")
	dead.spec.Weight = 0
	for _, spray := range []bool{false, true} {
		p := start(t, specs(dead), func(r *udp.Route) { r.Spec.Spray = spray })
		conn := p.dial()
		if err := sendTrain(conn, make([]byte, 95), 10); err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte("x"))
		st := p.stats()
		eventually(t, "eleven to be dropped", func() bool { return st.Dropped[udp.DropRefused].Load() == 11 })
		if n := st.Outcomes[l4.NoBackend].Load(); n != 11 {
			t.Errorf("spray %v: the reason is counted %d times", spray, n)
		}
	}
}
