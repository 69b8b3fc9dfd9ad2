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

// A sender is one socket that sends numbered datagrams and expects nothing back.
type sender struct {
	sent atomic.Int64
	stop chan struct{}
	done sync.WaitGroup
}

func (p *proxy) send(every time.Duration) *sender {
	p.t.Helper()
	c := p.dial()
	s := &sender{stop: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
			if _, err := fmt.Fprintf(c, "%d", s.sent.Add(1)); err != nil {
				p.t.Errorf("the sender is told of an error: %v", err)
			}
		}
	})
	p.t.Cleanup(s.halt)
	return s
}

func (s *sender) halt() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.done.Wait()
}

// arrives waits until what is sent reaches s.
func (s *server) arrives(t *testing.T) {
	t.Helper()
	before := s.count()
	eventually(t, "datagrams to reach "+s.spec.Name, func() bool { return s.count() >= before+3 })
}

// Case O-24: a sender that never pauses follows its backend's state, whatever ends it.
func TestOneWaySenderIsMoved(t *testing.T) {
	a, b := sink(t, "a"), sink(t, "b")
	p := start(t, specs(a, b))
	p.send(2 * time.Millisecond)
	id := func(s *server) balance.BackendID { return balance.BackendID{Name: s.spec.Name, Addr: s.spec.Addr} }
	eventually(t, "the session", func() bool { return a.count()+b.count() > 0 })
	here, there := a, b
	if b.count() > 0 {
		here, there = b, a
	}
	move := func(what string, flag balance.Flag) {
		t.Helper()
		p.pool.SetFlag(id(here), flag, true)
		there.arrives(t)
		n := here.count()
		there.arrives(t)
		if here.count() != n {
			t.Errorf("%s: %d datagrams went to a backend that is out", what, here.count()-n)
		}
		p.pool.SetFlag(id(here), flag, false)
		here, there = there, here
	}
	move("down", balance.Down)
	move("ejected", balance.Ejected)
	move("maint", balance.Maint)
	move("drain", balance.Drained)
	move("unresolved", balance.Unresolved)

	p.pool.SetWeight(id(here), 0)
	there.arrives(t)
	p.pool.SetWeight(id(here), -1)
	here, there = there, here

	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "round-robin", Backends: specs(there)})
	there.arrives(t)
	here, there = there, here

	began := time.Now()
	// Nobody is there for a while: nothing is left of that once somebody is.
	p.pool.SetFlag(id(here), balance.Down, true)
	eventually(t, "datagrams to be dropped", func() bool { return p.stats().Dropped[udp.DropRefused].Load() > 5 })
	if p.Active() != 0 {
		t.Error("there is a session without a backend")
	}
	p.pool.SetFlag(id(here), balance.Down, false)
	here.arrives(t)
	if n := p.Active(); n != 1 {
		t.Errorf("%d sessions of one sender", n)
	}
	st := p.stats()
	eventually(t, "the moved sessions to be reported", func() bool { return st.Outcomes[l4.BackendDown].Load() >= 8 })
	if st.Outcomes[l4.NoBackend].Load() != st.Dropped[udp.DropRefused].Load() {
		t.Error("a datagram without a backend has another outcome than no_backend")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	told := 0
	for _, s := range p.sessions {
		if s.Outcome == l4.NoBackend {
			told++
		}
	}
	if told == 0 || told > 1+int(time.Since(began)/time.Second) {
		t.Errorf("of clients without a backend the log hears %d times", told)
	}
}

// The ICMP errors of a dead backend are told, once for each time that one is met, and
// end nothing.
func TestRefusedIsAHint(t *testing.T) {
	a := sink(t, "a")
	p := start(t, specs(a))
	s := p.send(time.Millisecond)
	a.arrives(t)
	a.stop()
	refusals := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.refused["a"]
	}
	eventually(t, "hints", func() bool { return refusals() >= 10 })
	if p.Active() != 1 || len(p.Conns(10, "", "")) != 1 {
		t.Error("the session was torn down")
	}
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(a.spec.Addr.AddrPort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	buf := make([]byte, 20)
	var from netip.AddrPort
	for range 20 { // it is back: every datagram counts again
		if _, f, err := c.ReadFromUDPAddrPort(buf); err != nil {
			t.Fatal(err)
		} else if from.IsValid() && f != from {
			t.Errorf("from %v, then from %v", from, f)
		} else {
			from = f
		}
	}
	if n := refusals(); n > int(s.sent.Load()) {
		t.Errorf("%d hints, %d datagrams", n, s.sent.Load())
	}
	before := len(p.sessionsSoFar())
	c.WriteToUDPAddrPort([]byte("an answer after all"), from)
	eventually(t, "the answer to be told", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.answered["a"] > 0
	})
	if len(p.sessionsSoFar()) != before {
		t.Error("a session has ended")
	}
}

func (p *proxy) sessionsSoFar() []l4.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]l4.Session(nil), p.sessions...)
}

// Linux tells of the ICMP error of one datagram when the next is sent. That one must
// arrive.
func TestErrorOfOneDatagramCostsNoOther(t *testing.T) {
	a := sink(t, "a")
	p := start(t, specs(a))
	c := p.dial()
	c.Write([]byte("hello"))
	eventually(t, "the first datagram", func() bool { return a.count() == 1 })
	for i := range 20 {
		a.stop()
		fmt.Fprintf(c, "lost %d", i)
		eventually(t, "the error", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.refused["a"] > i
		})
		a = serve(t, "a", a.spec.Addr.String(), func([]byte) []byte { return nil })
		// A burst: those behind the first must not suffer either.
		for k := range 5 {
			fmt.Fprintf(c, "arrives %s", strings.Repeat("x", k))
		}
		eventually(t, "the others", func() bool { return a.count() == 5 })
	}
}

// While two-way traffic flows a drained backend keeps its session.
func TestDrainedBackendFinishes(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	p := start(t, specs(a, b))
	c := p.dial()
	first := ask(t, c, "x")
	var id balance.BackendID
	for _, s := range []*server{a, b} {
		if s.spec.Name == first {
			id = balance.BackendID{Name: first, Addr: s.spec.Addr}
		}
	}
	for _, out := range []func(){
		func() { p.pool.SetFlag(id, balance.Drained, true) },
		func() { p.pool.SetWeight(id, 0) },
	} {
		out()
		for range 10 {
			if got := ask(t, c, "x"); got != first {
				t.Fatalf("moved from %s to %s", first, got)
			}
		}
		if got := ask(t, p.dial(), "x"); got == first {
			t.Error("a new session has gone to a drained backend")
		}
	}
	p.pool.SetFlag(id, balance.Maint, true)
	if got := ask(t, c, "x"); got == first {
		t.Error("a backend in maintenance was asked")
	}
}

// In panic the verdicts on backends are disregarded, for sessions too.
func TestPanicKeepsSessions(t *testing.T) {
	a := named(t, "a")
	p := start(t, specs(a))
	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "round-robin", Panic: 50, Backends: specs(a)})
	c := p.dial()
	ask(t, c, "x")
	p.pool.SetFlag(balance.BackendID{Name: "a", Addr: a.spec.Addr}, balance.Down, true)
	for range 3 {
		ask(t, c, "x")
	}
	if n := p.stats().Sessions.Load(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// What is under way when a session is moved still reaches the client.
func TestLateReplies(t *testing.T) {
	gate := make(chan struct{})
	late := serve(t, "late", "127.0.0.1:0", func(b []byte) []byte { <-gate; return append([]byte("late "), b...) })
	p := start(t, specs(late))
	c := p.dial()
	c.Write([]byte("first"))
	eventually(t, "the question", func() bool { return late.count() == 1 })
	quick := named(t, "quick")
	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "round-robin", Backends: specs(quick)})
	if got := ask(t, c, "second"); got != "quick" {
		t.Errorf("got %q", got)
	}
	close(gate)
	if got := reply(t, c); got != "late first" {
		t.Errorf("got %q", got)
	}
	s := p.ended(1)[0]
	if s.Outcome != l4.BackendDown || s.Backend != "late" || s.DatagramsIn != 1 || s.DatagramsOut != 1 {
		t.Errorf("%+v", s)
	}
}
