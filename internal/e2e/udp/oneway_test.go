package udp

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// A collector takes numbered datagrams and says nothing. Whether it runs can be asked
// over TCP, at the same port.
type collector struct {
	name, addr string
	host       *lab.Host // nil = this one
	got        *ledger
	stop       func()
}

// start starts it, again or for the first time.
func (c *collector) start(t *testing.T) {
	t.Helper()
	var l net.Listener
	var err error
	if c.host == nil {
		l, err = net.Listen("tcp", c.addr)
	} else {
		l, err = c.host.Listen(c.addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return // closed
			}
			a.Close()
		}
	})
	silence := rig.AnswerUDP(t, rig.ListenUDP(t, c.host, c.addr), func(d []byte, from netip.AddrPort) [][]byte {
		n, err := strconv.Atoi(string(d))
		if err != nil {
			t.Errorf("%s got %q", c.name, d)
		}
		c.got.note(n, c.name, from)
		return nil
	})
	c.stop = sync.OnceFunc(func() { silence(); l.Close(); serving.Wait() })
	t.Cleanup(c.stop)
}

// A ledger knows who has got which datagram.
type ledger struct {
	mu   sync.Mutex
	by   map[int]string
	from map[int]netip.AddrPort
	last map[string]int
}

func newLedger() *ledger {
	return &ledger{by: map[int]string{}, from: map[int]netip.AddrPort{}, last: map[string]int{}}
}

func (l *ledger) note(n int, name string, from netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by[n], l.from[n] = name, from
	l.last[name] = max(l.last[name], n)
}

// has reports whether a collector has got datagram n or a later one.
func (l *ledger) has(name string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[name] >= n
}

// lost lists the datagrams from first to last that no backend has got.
func (l *ledger) lost(first, last int) (list []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := first; n <= last; n++ {
		if l.by[n] == "" {
			list = append(list, n)
		}
	}
	return list
}

// A sender sends numbered datagrams from one socket, 50 a second.
type sender struct {
	mu   sync.Mutex
	sent int
}

func startSender(t *testing.T, c net.Conn) *sender {
	s := &sender{}
	end := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			s.mu.Lock()
			s.sent++
			// A service that is there never refuses, whatever becomes of its backends.
			if _, err := fmt.Fprint(c, s.sent); err != nil {
				t.Errorf("datagram %d: %v", s.sent, err)
			}
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() { close(end); sending.Wait() })
	return s
}

// next is the number of the next datagram.
func (s *sender) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent + 1
}

// A oneWay is the stage that case O-24 is played on.
type oneWay struct {
	p           *rig.Proc
	yaml        func(backends ...*collector) string
	got         *ledger
	s           *sender
	a, b        *collector
	fail, mend  func(*collector)
	switchAfter int // the most datagrams a switch may cost: many times what it takes
}

// down lets a backend fail and waits until that is known. It returns the first
// datagram that might be lost, and the first that must not be.
func (o *oneWay) down(t *testing.T, c *collector) (from, to int) {
	t.Helper()
	from = o.s.next()
	o.fail(c)
	rig.Eventually(t, c.name+" to be out", func() bool { return o.p.Backend(t, "web", c.name).State != "up" })
	return from, o.s.next()
}

// more waits until a backend has got n datagrams from number first on, and makes sure
// that nothing from there on was lost.
func (o *oneWay) more(t *testing.T, c *collector, first, n int) {
	t.Helper()
	rig.Eventually(t, c.name+" to get more", func() bool { return o.got.has(c.name, first+n) })
	if lost := o.got.lost(first, first+n); len(lost) > 0 {
		t.Errorf("%s has %v; lost are %v", c.name, first, lost)
	}
}

func (o *oneWay) play(t *testing.T) {
	const slack = 10 // datagrams that were on their way when a backend failed
	o.more(t, o.a, 1, 50)

	// The one in use fails.
	from, to := o.down(t, o.a)
	o.more(t, o.b, to, 50)
	lost := o.got.lost(1, to)
	if len(lost) > 0 && lost[0] < from-slack || len(lost) > o.switchAfter {
		t.Errorf("a failed with datagram %d; lost are %v", from, lost)
	}
	t.Logf("a failed: %d lost", len(lost))

	// Reloads: it is removed, and added again, failed as it is.
	for _, yaml := range []string{o.yaml(o.b), o.yaml(o.a, o.b)} {
		o.p.MustReload(t, yaml)
		o.more(t, o.b, to, o.s.next()-to+25)
	}

	// No backend is left. Dropping costs next to nothing and is not logged all the time.
	rig.Eventually(t, "a to be down", func() bool { return o.p.Backend(t, "web", "a").State != "up" })
	before, beforehand := o.s.next(), strings.Count(o.p.Stderr(), "\n")
	from, _ = o.down(t, o.b)
	lines, began, cpu := strings.Count(o.p.Stderr(), "\n"), time.Now(), o.p.CPU(t)
	logged := strings.Count(o.p.Stdout(), "\n")
	time.Sleep(2500 * time.Millisecond)
	seconds := time.Since(began).Seconds()
	if busy := (o.p.CPU(t) - cpu).Seconds() / seconds; busy > 0.4 {
		t.Errorf("with no backend %.0f%% of a CPU are used", busy*100)
	}
	if n := strings.Count(o.p.Stderr(), "\n") - lines; float64(n) > seconds+2 {
		t.Errorf("%d lines in the log in %.1f s", n, seconds)
	}
	if n := strings.Count(o.p.Stderr(), "\n") - beforehand; !strings.Contains(o.p.Stderr(), "no eligible backend") || float64(n) > seconds+10 {
		t.Errorf("%d lines in the log since the last one failed", n)
	}
	if n := strings.Count(o.p.Stdout(), "\n") - logged; float64(n) > seconds+2 {
		t.Errorf("%d lines in the access log in %.1f s", n, seconds)
	}
	if lost := o.got.lost(before, from-slack); len(lost) > 0 {
		t.Errorf("lost before b failed are %v", lost)
	}

	// One is back, and the sender has not noticed anything.
	o.mend(o.b)
	rig.Eventually(t, "b to be up", func() bool { return o.p.Backend(t, "web", "b").State == "up" })
	to = o.s.next()
	o.more(t, o.b, to, 25)

	// The one in use is removed while both are well: nothing is lost.
	o.mend(o.a)
	rig.Eventually(t, "a to be up", func() bool { return o.p.Backend(t, "web", "a").State == "up" })
	o.p.MustReload(t, o.yaml(o.a))
	removed := o.s.next()
	o.more(t, o.a, to, removed-to+50)
	if lost := o.got.lost(to, removed+50); len(lost) > 0 {
		t.Errorf("a was taken from b with datagram %d; lost are %v", removed, lost)
	}

	// Each switch has ended one session, and nothing else has.
	ended := o.p.Metrics(t)[`poise_sessions_total{outcome="backend_down",service="web"}`]
	rig.Eventually(t, "the sessions to have ended", func() bool {
		ended = o.p.Metrics(t)[`poise_sessions_total{outcome="backend_down",service="web"}`]
		return ended >= 3
	})
	if ended != 3 {
		t.Errorf("%v sessions have ended", ended)
	}
	began, cpu = time.Now(), o.p.CPU(t)
	time.Sleep(time.Second)
	if busy := (o.p.CPU(t) - cpu).Seconds() / time.Since(began).Seconds(); busy > 0.4 {
		t.Errorf("%.0f%% of a CPU are used for 50 datagrams a second", busy*100)
	}
}

// oneWayConfig is the configuration of case O-24, with everything faster.
func oneWayConfig(listen string) func(backends ...*collector) string {
	return func(backends ...*collector) string {
		var members []string
		for _, c := range backends {
			members = append(members, rig.Member(c.name, c.addr))
		}
		return rig.UDPConfig(listen, "idle: 1h", "balance: first, check: {type: tcp, interval: 100ms, fast_interval: 100ms, down_interval: 100ms, timeout: 500ms, fall: 2, rise: 1}", members...)
	}
}

// Case O-24: one socket that sends and never hears anything; backends whose process
// exits, so that datagrams are refused.
func TestUDPOneWay(t *testing.T) {
	t.Parallel()
	listen, got := rig.UDPAddr(t), newLedger()
	o := &oneWay{
		yaml: oneWayConfig(listen), got: got, switchAfter: 100,
		a:    &collector{name: "a", addr: rig.UDPAddr(t), got: got},
		b:    &collector{name: "b", addr: rig.UDPAddr(t), got: got},
		fail: func(c *collector) { c.stop() },
		mend: func(c *collector) { c.start(t) },
	}
	o.a.start(t)
	o.b.start(t)
	o.p = rig.Start(t, o.yaml(o.a, o.b))
	o.s = startSender(t, rig.DialUDP(t, listen))
	o.play(t)
}

// The same with backends whose packets are dropped.
func TestLabUDPOneWay(t *testing.T) {
	t.Parallel()
	l, got := lab.New(t), newLedger()
	o := &oneWay{
		yaml: oneWayConfig("10.77.0.10:514"), got: got, switchAfter: 200,
		a: &collector{name: "a", addr: "10.78.0.11:9001", host: l.Backend1, got: got},
		b: &collector{name: "b", addr: "10.78.0.12:9001", host: l.Backend2, got: got},
		fail: func(c *collector) {
			c.host.Run(t, "nft", "add table inet lab; add chain inet lab in { type filter hook input priority 0; }; "+
				"add rule inet lab in meta l4proto { tcp, udp } th dport 9001 drop")
		},
		mend: func(c *collector) { c.host.Run(t, "nft", "flush", "ruleset") },
	}
	o.a.start(t)
	o.b.start(t)
	o.p = rig.StartOn(t, l, o.yaml(o.a, o.b))
	o.s = startSender(t, rig.DialUDPFrom(t, l.Client, "10.77.0.10:514"))
	o.play(t)
}
