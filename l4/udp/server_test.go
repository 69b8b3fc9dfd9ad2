package udp_test

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/udp"
)

// descriptors counts this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// A reload moves nobody: neither to another loop nor to another backend.
func TestReloadKeepsSessions(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	p := start(t, specs(a, b))
	var clients []*net.UDPConn
	var at []string
	for range 20 {
		c := p.dial()
		clients, at = append(clients, c), append(at, ask(t, c, "x"))
	}
	extra := freePort(t)
	for round := range 5 {
		r := p.route
		r.Spec.Idle += time.Duration(round+1) * time.Second
		if round%2 == 0 {
			r.Spec.Listen = append(r.Spec.Listen[:1:1], l4.Listen{Addr: netip.AddrPortFrom(p.addr.Addr(), extra)})
		}
		p.run(r)
		for i, c := range clients {
			if got := ask(t, c, "x"); got != at[i] {
				t.Fatalf("client %d was moved from %s to %s", i, at[i], got)
			}
		}
	}
	if n := p.stats().Sessions.Load(); n != 20 || a.senders()+b.senders() != 20 {
		t.Errorf("%d sessions, %d sockets", n, a.senders()+b.senders())
	}
}

// A service that gets another pool, or another way to it, takes its sessions along.
func TestReloadTakesEffectOnSessions(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	p := start(t, specs(a))
	c := p.dial()
	ask(t, c, "x")
	r := p.route
	r.Pool = balance.New(balance.Spec{Name: "other", Algorithm: "first", Backends: specs(b)}, nil)
	p.run(r)
	if got := ask(t, c, "x"); got != "b" {
		t.Errorf("still at %s", got)
	}
	r.Source = netip.MustParseAddr("127.3.2.1")
	p.run(r)
	ask(t, c, "x")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.from) != 2 {
		t.Errorf("asked from %v", b.from)
	}
	r.Spec.Idle = time.Millisecond
	p.run(r)
	c.Write([]byte("x"))
	eventually(t, "the new idle limit to end it", func() bool { return p.Active() == 0 })
}

// A removed listener keeps its sessions until they end, makes no new ones, and is
// free for the next.
func TestRemovedListener(t *testing.T) {
	p := start(t, specs(echo(t, "a")), func(r *udp.Route) { r.Spec.Replies = 2 })
	c := p.dial()
	ask(t, c, "x")
	p.run()
	if got := ask(t, c, "y"); got != "y" {
		t.Errorf("got %q", got)
	}
	if svc := p.Services(); len(svc) != 1 || !svc[0].Leaving() {
		t.Fatalf("a removed service with a session: %v", svc)
	}
	n := p.Services()[0].Stats.Dropped[udp.DropRefused].Load()
	p.dial().Write([]byte("x"))
	eventually(t, "the newcomer to be dropped", func() bool { return p.Services()[0].Stats.Dropped[udp.DropRefused].Load() == n+1 })
	if p.Active() != 1 {
		t.Errorf("%d sessions", p.Active())
	}
	// It can come back, with the sessions it has.
	p.run(p.route)
	ask(t, p.dial(), "x")
	p.run()
	p.Kill(l4.Killed)
	eventually(t, "the port to be free", func() bool {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(p.addr))
		if err == nil {
			l.Close()
		}
		return err == nil
	})
	if len(p.Services()) != 0 {
		t.Error("the service is still there")
	}
	p.run(p.route)
	ask(t, c, "x")
}

// A client that never pauses does not keep a removed listener for ever.
func TestRemovedListenerGivesUp(t *testing.T) {
	p := start(t, specs(sink(t, "a")), func(r *udp.Route) { r.Spec.Idle = 200 * time.Millisecond })
	c := p.dial()
	c.Write([]byte("x"))
	eventually(t, "the session", func() bool { return p.Active() == 1 })
	p.run()
	eventually(t, "the listener to close", func() bool {
		_, err := c.Write([]byte("x"))
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if s := p.ended(1)[0]; s.Outcome != l4.Drained {
		t.Errorf("%+v", s)
	}
}

// Reloads that take a listener away and bring it back, at any moment of its closing.
func TestRemoveAndAddAgain(t *testing.T) {
	p := start(t, specs(echo(t, "a")), func(r *udp.Route) { r.Spec.Replies = 1 })
	c := p.dial()
	before := descriptors(t)
	for range 100 {
		c.Write([]byte("x")) // perhaps there is a session, perhaps it is ending
		p.run()
		p.run(p.route)
		change, err := p.Prepare(nil)
		if err != nil {
			t.Fatal(err)
		}
		change.Abort()
	}
	c = p.dial()
	ask(t, c, "x")
	eventually(t, "the sessions to end", func() bool { return p.Active() == 0 })
	eventually(t, "the descriptors to be given back", func() bool { return descriptors(t) <= before+1 })
}

func TestPrepareIsAllOrNothing(t *testing.T) {
	p := start(t, specs(echo(t, "a")))
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	low := netip.AddrPortFrom(p.addr.Addr(), freePort(t)) // no session's
	other, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(low))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	before := descriptors(t)
	bad := p.route
	bad.Spec.Name = "bad"
	bad.Spec.Listen = []l4.Listen{
		{Addr: netip.AddrPortFrom(p.addr.Addr(), freePort(t))},
		{Addr: netip.MustParseAddrPort(taken.LocalAddr().String())},
		{Addr: netip.MustParseAddrPort("192.0.2.1:7000")},
		{Addr: low},
	}
	_, err = p.Prepare([]udp.Route{p.route, bad})
	if err == nil {
		t.Fatal("a taken address was bound")
	}
	for _, want := range []string{
		"service bad: listen " + taken.LocalAddr().String() + ": bind: address already in use; another process",
		"service bad: listen 192.0.2.1:7000: bind: cannot assign requested address; this host does not have the address: add it, or set freebind: true",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	for line := range strings.Lines(err.Error()) {
		mine := strings.Contains(line, taken.LocalAddr().String())
		if strings.Contains(line, "reserve the port (net.ipv4.ip_local_reserved_ports)") != mine {
			t.Errorf("the remedy of a port that may be a session's: %s", line)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors leaked", after-before)
	}
	ask(t, p.dial(), "x")
	before = descriptors(t)
	bad.Spec.Freebind = true
	bad.Spec.Listen = bad.Spec.Listen[2:3]
	c, err := p.Prepare([]udp.Route{p.route, bad})
	if err != nil {
		t.Fatal(err)
	}
	c.Abort()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors leaked", after-before)
	}
}

// What comes to a new address before Commit waits for it.
func TestNothingIsLostBeforeCommit(t *testing.T) {
	p := start(t, specs(echo(t, "a")))
	r := p.route
	at := netip.AddrPortFrom(p.addr.Addr(), freePort(t))
	r.Spec.Listen = append(r.Spec.Listen[:1:1], l4.Listen{Addr: at})
	change, err := p.Prepare([]udp.Route{r})
	if err != nil {
		t.Fatal(err)
	}
	c := p.dial(at)
	c.Write([]byte("early"))
	change.Commit()
	if got := reply(t, c); got != "early" {
		t.Errorf("got %q", got)
	}
}

func TestStopAccepting(t *testing.T) {
	p := start(t, specs(echo(t, "a")), func(r *udp.Route) { r.Spec.Idle = 300 * time.Millisecond })
	idle := start(t, specs(echo(t, "a")))
	idle.StopAccepting()
	if l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(idle.addr)); err != nil {
		t.Errorf("a listener without sessions is still there: %v", err)
	} else {
		l.Close()
	}
	c := p.dial()
	ask(t, c, "x")
	p.StopAccepting()
	for begun := time.Now(); time.Since(begun) < time.Second; {
		ask(t, c, "x") // it goes on for as long as it likes
	}
	p.dial().Write([]byte("x"))
	if st := p.stats(); st.Sessions.Load() != 1 {
		t.Errorf("%d sessions", st.Sessions.Load())
	}
	p.Kill(l4.Drained)
	if s := p.ended(1)[0]; s.Outcome != l4.Drained || s.By != l4.Proxy {
		t.Errorf("%+v", s)
	}
}

func TestCloseBackend(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	p := start(t, specs(a, b))
	var clients []*net.UDPConn
	atA := 0
	for range 20 {
		c := p.dial()
		clients = append(clients, c)
		if ask(t, c, "x") == "a" {
			atA++
		}
	}
	var backend *balance.Backend
	for _, x := range p.pool.Backends() {
		if x.Name() == "a" {
			backend = x
		}
	}
	p.pool.SetFlag(backend.ID(), balance.Down, true)
	p.CloseBackend(backend, l4.BackendDown, 200*time.Millisecond)
	eventually(t, "its sessions to go", func() bool { return int(p.Active()) == 20-atA })
	for _, s := range p.ended(atA) {
		if s.Backend != "a" || s.Outcome != l4.BackendDown {
			t.Errorf("%+v", s)
		}
	}
	for _, c := range clients {
		if ask(t, c, "x") != "b" {
			t.Error("it was asked again")
		}
	}
}

func TestConns(t *testing.T) {
	p := start(t, specs(echo(t, "a")))
	c := p.dial()
	ask(t, c, "hello")
	ask(t, p.dial(), "x")
	list := p.Conns(10, "pool", "a")
	if len(list) != 2 {
		t.Fatalf("%d sessions", len(list))
	}
	got := list[0] // the oldest
	if got.Flow.Client.String() != c.LocalAddr().String() || got.BytesIn != 5 || got.BytesOut != 5 ||
		got.DatagramsIn != 1 || got.DatagramsOut != 1 || got.State != "open" || got.Service != "service" || got.Age <= 0 {
		t.Errorf("%+v", got)
	}
	if len(p.Conns(1, "", "")) != 1 || len(p.Conns(10, "other", "")) != 0 || len(p.Conns(10, "", "other")) != 0 {
		t.Error("the limit or a filter does nothing")
	}
}

// What comes while a loop has no time is lost in the kernel, and counted.
func TestOverflowIsCounted(t *testing.T) {
	loops, err := loop.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loops.Stop)
	gate := make(chan struct{})
	s := udp.NewServer(service.Host{Loops: loops, Descriptors: new(sock.Descriptors), Log: slog.New(slog.DiscardHandler)}, udp.Hooks{
		Answered: func(*balance.Backend, bool) { <-gate },
	})
	t.Cleanup(s.Close)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	pool := balance.New(balance.Spec{Name: "pool", Algorithm: "first", Backends: specs(echo(t, "a"))}, nil)
	change, err := s.Prepare([]udp.Route{{
		Spec: udp.Spec{Name: "service", Idle: time.Minute, Listen: []l4.Listen{{Addr: at}}}, Pool: pool,
	}})
	if err != nil {
		t.Fatal(err)
	}
	change.Commit()
	p := &proxy{t: t, addr: at, Server: s}
	c := p.dial()
	const sent = 20000
	for range sent {
		c.Write(make([]byte, 1000))
	}
	close(gate)
	st := p.stats()
	eventually(t, "all to be counted", func() bool {
		p.Flush()
		return st.DatagramsIn.Load()+st.Dropped[udp.DropOverflow].Load() >= sent
	})
	if n := st.Dropped[udp.DropOverflow].Load(); n == 0 {
		t.Error("nothing was lost")
	}
}
