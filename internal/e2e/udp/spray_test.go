package udp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// A udpSink counts datagrams and says nothing.
type udpSink struct {
	name, addr string
	got        atomic.Int64
	stop       func()
}

func startSinks(t *testing.T, names ...string) (list []*udpSink) {
	t.Helper()
	for _, name := range names {
		s := &udpSink{name: name, addr: rig.UDPAddr(t)}
		s.start(t)
		list = append(list, s)
	}
	return list
}

func (s *udpSink) start(t *testing.T) {
	t.Helper()
	s.stop = rig.AnswerUDP(t, rig.ListenUDP(t, nil, s.addr), func([]byte, netip.AddrPort) [][]byte {
		s.got.Add(1)
		return nil
	})
}

func (s *udpSink) member() string { return rig.Member(s.name, s.addr) }

func total(sinks []*udpSink) (n int64) {
	for _, s := range sinks {
		n += s.got.Load()
	}
	return n
}

// With spray each datagram of one sender goes to whichever backend is next.
func TestUDPSpray(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	sinks := startSinks(t, "a", "b", "c")
	const pool = "balance: round-robin, check: {type: none}, passive: {failures: 0}"
	yaml := func(list ...*udpSink) string {
		var members []string
		for _, s := range list {
			members = append(members, s.member())
		}
		return rig.UDPConfig(listen, "spray: true", pool, members...)
	}
	p := rig.Start(t, yaml(sinks...))
	c := rig.DialUDP(t, listen)
	send := func(n int) {
		t.Helper()
		want := total(sinks) + int64(n)
		for i := range n {
			if _, err := fmt.Fprintf(c, "<13>line %d", i); err != nil {
				t.Fatal(err)
			}
			if i%50 == 49 {
				time.Sleep(time.Millisecond) // within what the sockets' buffers hold
			}
		}
		rig.Eventually(t, "all to arrive", func() bool { return total(sinks) >= want })
		if got := total(sinks); got != want {
			t.Errorf("%d arrived, want %d: some twice", got, want)
		}
	}
	send(300)
	for _, s := range sinks {
		if n := s.got.Load(); n != 100 {
			t.Errorf("%s got %d of 300", s.name, n)
		}
	}
	if s := p.Status(t); s.Connections != 0 || s.Services[0].UDP.DatagramsIn != 300 || s.Services[0].UDP.DatagramsOut != 0 {
		t.Errorf("%+v, %+v", s.Services[0], s.Services[0].UDP)
	}
	if b := p.Backend(t, "web", "a"); b.BytesIn == 0 || b.Connections != 0 || b.Datagrams != 100 {
		t.Errorf("%+v", b)
	}

	// Reloads and the operator, in the middle of it.
	p.MustReload(t, yaml(sinks[0], sinks[1]))
	send(100)
	p.MustReload(t, yaml(sinks...))
	p.Operate(t, "drain", "web/a")
	before := sinks[0].got.Load()
	send(100)
	if n := sinks[0].got.Load() - before; n != 0 {
		t.Errorf("a got %d while it drains", n)
	}
	for _, s := range []string{"web/b", "web/c"} {
		_, _, code := rig.CLI(t, "drain", s, "--socket", p.Socket())
		if code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	c.Refused(t, p, "no_backend")
	p.Operate(t, "ready", "web/b")
	send(20)
	if p.Metrics(t)[`poise_udp_dropped_total{reason="refused",service="web"}`] != 1 {
		t.Error("not one was dropped")
	}
}

// A backend that refuses is ejected; when it is back one datagram goes there on trial,
// and if nothing is refused for a while it has its share again.
func TestUDPSprayReturns(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	sinks := startSinks(t, "a", "b")
	p := rig.Start(t, rig.UDPConfig(listen, "spray: true", "balance: round-robin, check: {type: none}, passive: {failures: 3, base: 500ms, max: 500ms}",
		sinks[0].member(), sinks[1].member()))
	s := startSender(t, rig.DialUDP(t, listen))
	state := func() string { return p.Backend(t, "web", "a").State }
	sinks[0].stop()
	rig.Eventually(t, "a to be ejected", func() bool { return state() == "ejected" })
	sinks[0].start(t)
	rig.Eventually(t, "a to be on trial", func() bool { return state() == "half-open" })
	on, had := s.next(), sinks[0].got.Load()
	seen := sinks[1].got.Load()
	rig.Eventually(t, "b to get more", func() bool { return sinks[1].got.Load() > seen+50 })
	if n := sinks[0].got.Load() - had; state() == "half-open" && n > 2 {
		t.Errorf("a got %d of %d on trial", n, s.next()-on)
	}
	rig.Eventually(t, "a to be up", func() bool { return state() == "up" })
	seen = sinks[0].got.Load()
	rig.Eventually(t, "a to have its share", func() bool { return sinks[0].got.Load() > seen+25 })
}

// The same with sessions, whose clients send and never hear anything: one is the trial.
func TestUDPTrialSession(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	sinks := startSinks(t, "a", "b")
	p := rig.Start(t, rig.UDPConfig(listen, "idle: 1h", "balance: first, check: {type: none}, passive: {failures: 3, base: 500ms, max: 500ms}",
		sinks[0].member(), sinks[1].member()))
	one := startSender(t, rig.DialUDP(t, listen))
	rig.Eventually(t, "a to get some", func() bool { return sinks[0].got.Load() > 10 })
	state := func() string { return p.Backend(t, "web", "a").State }
	sinks[0].stop()
	rig.Eventually(t, "a to be ejected", func() bool { return state() == "ejected" })
	seen := sinks[1].got.Load()
	rig.Eventually(t, "b to get more", func() bool { return sinks[1].got.Load() > seen+10 })
	sinks[0].start(t)
	rig.Eventually(t, "a to be on trial", func() bool { return state() == "half-open" })
	clients := []*sender{one, startSender(t, rig.DialUDP(t, listen)), startSender(t, rig.DialUDP(t, listen))}
	var on []string
	rig.Eventually(t, "all clients to have a session", func() bool {
		on = nil
		for _, c := range p.Conns(t) {
			if c.State == "open" {
				on = append(on, c.Backend)
			}
		}
		return len(on) == len(clients)
	})
	slices.Sort(on)
	if !slices.Equal(on, []string{"a", "b", "b"}) {
		t.Errorf("the sessions are with %v", on)
	}
}
