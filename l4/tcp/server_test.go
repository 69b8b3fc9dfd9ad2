package tcp_test

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// hold opens a connection that has been answered.
func (p *proxy) hold() *net.TCPConn {
	p.t.Helper()
	c := p.dial()
	if err := ping(c); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// told reports whether c's peer has ended it.
func told(c *net.TCPConn) bool {
	c.SetReadDeadline(time.Now().Add(patience))
	_, err := c.Read(make([]byte, 1))
	ne, ok := err.(net.Error)
	return err != nil && (!ok || !ne.Timeout())
}

func TestReloadKeepsListenersAndConnections(t *testing.T) {
	p := start(t, one(echo(t)))
	c := p.hold()
	other := p.route
	other.Spec.Idle = time.Hour
	other.Spec.Keepalive = tcp.Keepalive{Idle: time.Second, Interval: time.Second, Probes: 3}
	for range 5 {
		p.run(other)
		if err := ping(c); err != nil {
			t.Fatal(err)
		}
		p.hold().Close()
	}
	if svc := p.Services(); len(svc) != 1 || svc[0].Stats.Accepted.Load() != 6 {
		t.Errorf("services %v", svc)
	}
	c.Close()
}

// A service that is removed is listed for as long as it has connections, also those that
// its listener accepts on its way out, whoever has looked when there was none.
func TestListedWhileListenerCloses(t *testing.T) {
	p := start(t, one(echo(t)))
	release := make(chan struct{})
	p.loops.Each(func(int) { <-release })
	c := p.dial() // into the queue
	change, err := p.Prepare(nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { change.Commit(); close(done) }()
	for range 20 {
		p.Services()
		time.Sleep(time.Millisecond) // Commit has begun, or begins later: it makes no difference
	}
	close(release)
	<-done
	if err := ping(c); err != nil {
		t.Fatal(err)
	}
	if svc := p.Services(); len(svc) != 1 || svc[0].Active() != 1 || !svc[0].Leaving() {
		t.Errorf("%d services listed, and a connection of one is open", len(svc))
	}
	c.Close()
	eventually(t, "the service to go", func() bool { return len(p.Services()) == 0 })
}

// Connections that are in the accept queue of a listener being removed are
// served, those that come later refused, open ones go on.
func TestRemoveListenerUnderLoad(t *testing.T) {
	p := start(t, one(echo(t)))
	held := p.hold()
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				c, err := net.DialTimeout("tcp", p.addr, patience)
				if err != nil {
					return // refused: it has gone
				}
				c.SetDeadline(time.Now().Add(patience))
				if err := ping(c); err != nil {
					t.Errorf("accepted and then dropped: %v", err)
				}
				c.Close()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	p.run() // nothing is to run
	eventually(t, "the listener to close", func() bool {
		c, err := net.DialTimeout("tcp", p.addr, 100*time.Millisecond)
		if err == nil {
			ping(c)
			c.Close()
			return false
		}
		return strings.Contains(err.Error(), "refused")
	})
	stop.Store(true)
	clients.Wait()
	if err := ping(held); err != nil {
		t.Errorf("an open connection was cut: %v", err)
	}
	if svc := p.Services(); len(svc) != 1 || !svc[0].Leaving() {
		t.Errorf("a removed service with a connection: %v", svc)
	}
	held.Close()
	eventually(t, "the service to go", func() bool { return len(p.Services()) == 0 })
}

func TestPrepareIsAllOrNothing(t *testing.T) {
	p := start(t, one(echo(t)))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	before := descriptors(t)
	bad := p.route
	bad.Spec.Name = "bad"
	bad.Spec.Listen = []l4.Listen{
		{Addr: freeAddr(t)},
		{Addr: netip.MustParseAddrPort(taken.Addr().String())},
		{Addr: netip.MustParseAddrPort("192.0.2.1:7000")},
	}
	_, err = p.Prepare([]tcp.Route{p.route, bad})
	if err == nil {
		t.Fatal("a taken address was bound")
	}
	for _, want := range []string{
		"service bad: listen " + taken.Addr().String() + ": bind: address already in use; another process",
		"service bad: listen 192.0.2.1:7000: bind: cannot assign requested address; this host does not have the address: add it, or set freebind: true",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors leaked", after-before)
	}
	p.hold().Close()
	bad.Spec.Freebind = true
	bad.Spec.Listen = bad.Spec.Listen[2:]
	c, err := p.Prepare([]tcp.Route{p.route, bad})
	if err != nil {
		t.Fatalf("with freebind: %v", err)
	}
	c.Abort()
	eventually(t, "all descriptors to be freed", func() bool { return descriptors(t) <= before })
	p.hold().Close()
}

// A specific address may take over from the wildcard on the same port.
func TestReloadBetweenWildcardAndAddress(t *testing.T) {
	p := start(t, one(echo(t)), func(r *tcp.Route) {
		port := r.Spec.Listen[0].Addr.Port()
		r.Spec.Listen[0].Addr = netip.AddrPortFrom(netip.IPv4Unspecified(), port)
	})
	narrow := p.route
	narrow.Spec.Listen = []l4.Listen{{Addr: netip.MustParseAddrPort("127.0.0.1:" + p.addr[strings.LastIndex(p.addr, ":")+1:])}}
	p.run(narrow)
	p.addr = narrow.Spec.Listen[0].String()
	p.hold().Close()
	p.run(p.route)
	p.hold().Close()
}

func TestCloseBackend(t *testing.T) {
	a, b := echo(t), echo(t)
	p := start(t, []balance.BackendSpec{a, b})
	var held []*net.TCPConn
	for range 10 {
		held = append(held, p.hold())
	}
	gone := p.pool.Backends()[0]
	p.pool.SetFlag(gone.ID(), balance.Down, true)
	p.CloseBackend(gone, l4.BackendDown, 0)
	for _, s := range p.ended(5) {
		if s.Outcome != l4.BackendDown || s.Backend != gone.Name() {
			t.Errorf("%v at %s", s.Outcome, s.Backend)
		}
	}
	alive := 0
	for _, c := range held {
		if ping(c) == nil {
			alive++
		}
		c.Close()
	}
	if alive != 5 {
		t.Errorf("%d connections go on, want 5", alive)
	}
}

// A connection that is being made to a backend when that goes down finds another.
func TestCloseBackendWhileConnecting(t *testing.T) {
	p := start(t, []balance.BackendSpec{mute(t), echo(t)}, func(r *tcp.Route) { r.Spec.Connect = patience })
	first, second := p.dial(), p.dial() // one of them waits for the silent one
	eventually(t, "both", func() bool { return p.Active() == 2 })
	silent := p.pool.Backends()[0]
	p.pool.SetFlag(silent.ID(), balance.Down, true)
	p.CloseBackend(silent, l4.BackendDown, 0)
	for _, c := range []*net.TCPConn{first, second} {
		if err := ping(c); err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

func TestDrainAndKill(t *testing.T) {
	p := start(t, one(echo(t)))
	c := p.hold()
	p.StopAccepting()
	if c, err := net.DialTimeout("tcp", p.addr, 200*time.Millisecond); err == nil {
		c.Close()
		t.Error("a connection was accepted")
	}
	if err := ping(c); err != nil {
		t.Error(err)
	}
	p.Kill(l4.Drained)
	if !told(c) {
		t.Error("the client was not told")
	}
	p.outcome(l4.Drained)
}

func TestFlushCountsOpenConnections(t *testing.T) {
	p := start(t, one(echo(t)))
	c := p.hold()
	p.Flush()
	st, b := &p.Services()[0].Stats, p.pool.Backends()[0]
	if st.BytesIn.Load() != 16 || st.BytesOut.Load() != 16 || b.Stats.BytesIn.Load() != 16 || b.Stats.BytesOut.Load() != 16 {
		t.Error("an open connection's bytes are not counted")
	}
	c.Close()
	p.ended(1)
	if st.BytesIn.Load() != 16 || b.Stats.BytesOut.Load() != 16 {
		t.Error("bytes are counted twice")
	}
	if !p.loops.Within(patience, func(int) {}) {
		t.Error("a loop does not answer")
	}
	busy, total := p.loops.Busy()
	if len(busy) != 2 || busy[0] < 0 || busy[0] > total[0] {
		t.Errorf("busy %v of %v", busy, total)
	}
}

func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	b := serveOn(t, l, func(c net.Conn) { io.Copy(c, c) })
	p := start(t, one(b), func(r *tcp.Route) {
		r.Spec.Listen = []l4.Listen{{Addr: netip.AddrPortFrom(netip.IPv6Unspecified(), r.Spec.Listen[0].Addr.Port())}}
	})
	port := p.addr[strings.LastIndex(p.addr, ":")+1:]
	for _, host := range []string{"127.0.0.1", "::1"} {
		p.addr = net.JoinHostPort(host, port)
		p.hold().Close()
	}
	for _, s := range p.ended(2) {
		if s.Flow.Client.Addr().Is4In6() || s.Flow.Client.Addr() != s.Flow.VIP.Addr() {
			t.Errorf("flow %v", s.Flow)
		}
	}
}

// Nothing of the relay allocates: not per byte, not per message.
func TestRelayAllocatesNothing(t *testing.T) {
	p := start(t, one(echo(t)))
	c := p.hold()
	buf := make([]byte, 16)
	n := testing.AllocsPerRun(200, func() {
		c.Write(buf)
		io.ReadFull(c, buf)
	})
	if n >= 1 {
		t.Errorf("%v allocations for a message", n)
	}
	c.Close()
}
