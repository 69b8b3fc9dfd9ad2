package tcp_test

import (
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// ping sends 16 bytes right after the connect and expects them back.
func ping(c net.Conn) error {
	if _, err := c.Write([]byte("0123456789abcdef")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 16))
	return err
}

// O-10: whoever meets a dead backend is moved to another one, at once when it
// refuses, and after the connect timeout when it is silent.
func TestRetryOnAnotherBackend(t *testing.T) {
	backends := []balance.BackendSpec{dead(t), mute(t), echo(t)}
	p := start(t, backends, func(r *tcp.Route) { r.Spec.Connect = 300 * time.Millisecond })
	const n = 60
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			c, err := net.DialTimeout("tcp", p.addr, patience)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			if err := ping(c); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	retried := 0
	for _, s := range p.ended(n) {
		if s.Outcome != l4.OK || s.Backend != backends[2].Name {
			t.Errorf("ended %v at %s", s.Outcome, s.Backend)
		}
		if s.BytesIn != 16 || s.BytesOut != 16 {
			t.Errorf("%d bytes in, %d out", s.BytesIn, s.BytesOut)
		}
		retried += s.Retries
	}
	if retried == 0 {
		t.Error("nobody was retried")
	}
	st := p.pool.Backends()
	if st[0].Stats.ConnectFailures[l4.ConnectRefused].Load() == 0 || st[1].Stats.ConnectFailures[l4.ConnectTimedOut].Load() == 0 {
		t.Error("failures are not counted by reason")
	}
	if got := p.Services()[0].Stats.Retries.Load(); got != uint64(retried) {
		t.Errorf("%d retries counted, %d reported", got, retried)
	}
}

func TestConnectFails(t *testing.T) {
	for _, c := range []struct {
		name     string
		backends []balance.BackendSpec
		adjust   func(*tcp.Spec)
		want     l4.Outcome
		retries  int
	}{
		{"refused", one(dead(t)), nil, l4.ConnectFailed, 0},
		{"refused twice", []balance.BackendSpec{dead(t), {Name: "too", Addr: dead(t).Addr, Weight: 1}}, nil, l4.ConnectFailed, 1},
		{"no retries", []balance.BackendSpec{dead(t), {Name: "too", Addr: dead(t).Addr, Weight: 1}}, func(s *tcp.Spec) { s.Retries = 0 }, l4.ConnectFailed, 0},
		{"silent", one(mute(t)), nil, l4.ConnectTimeout, 0},
		{"total deadline", []balance.BackendSpec{mute(t), mute2(t)}, func(s *tcp.Spec) { s.ConnectTotal = 250 * time.Millisecond }, l4.ConnectTimeout, 1},
		{"no such socket", one(balance.BackendSpec{Name: "unix", Addr: balance.Address{Unix: "/nonexistent/s"}, Weight: 1}), nil, l4.ConnectFailed, 0},
		{"nobody", nil, nil, l4.NoBackend, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, c.backends, func(r *tcp.Route) {
				r.Spec.Connect = 200 * time.Millisecond
				if c.adjust != nil {
					c.adjust(&r.Spec)
				}
			})
			if err := p.refused(); !isReset(err) {
				t.Errorf("the client sees %v", err)
			}
			s := p.outcome(c.want)
			if s.Retries != c.retries || s.Backend != "" {
				t.Errorf("%d retries, backend %q", s.Retries, s.Backend)
			}
			if s.Connect != l4.Unreached || s.FirstByte != l4.Unreached {
				t.Errorf("connect %v, first byte %v", s.Connect, s.FirstByte)
			}
		})
	}
}

func mute2(t *testing.T) balance.BackendSpec {
	b := mute(t)
	b.Name = "mute2"
	return b
}

// timeouts.connect_total is of use with retries: 0 as well: a connection that is being
// made to a backend that goes down goes to another one, which is no retry, and both
// together have so much time. Therefore the configuration takes the two keys together.
func TestTotalDeadlineWithoutRetries(t *testing.T) {
	const limit = 2 * time.Second
	p := start(t, []balance.BackendSpec{mute(t), mute2(t)}, func(r *tcp.Route) {
		r.Spec.Retries, r.Spec.Connect, r.Spec.ConnectTotal = 0, limit, limit
	})
	begin := time.Now()
	p.dial()
	first := func() *balance.Backend {
		for _, b := range p.pool.Backends() {
			if b.Active() > 0 {
				return b
			}
		}
		return nil
	}
	eventually(t, "an attempt", func() bool { return first() != nil })
	b := first()
	time.Sleep(limit / 2) // so that a whole attempt from here on would end late
	p.pool.SetFlag(b.ID(), balance.Down, true)
	p.CloseBackend(b, l4.BackendDown, 0)
	eventually(t, "the other backend", func() bool { return b.Active() == 0 && first() != nil })
	p.outcome(l4.ConnectTimeout)
	if took := time.Since(begin); took > limit*5/4 {
		t.Errorf("two attempts took %s, with %s for all", took, limit)
	}
}

// A client that resets while its backend is being connected is not kept.
func TestClientGoneWhileConnecting(t *testing.T) {
	p := start(t, one(mute(t)), func(r *tcp.Route) { r.Spec.Connect, r.Spec.ConnectTotal = patience, patience })
	c := p.dial()
	eventually(t, "the connection", func() bool { return p.Active() == 1 })
	reset(c)
	p.outcome(l4.ClientReset)
}

// A client that half-closes while its backend is being connected is served.
func TestClientEndsWhileConnecting(t *testing.T) {
	p := start(t, []balance.BackendSpec{mute(t), echo(t)}, func(r *tcp.Route) { r.Spec.Connect = 300 * time.Millisecond })
	for range 2 { // one of them meets the silent one
		c := p.dial()
		c.Write([]byte("early"))
		c.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "early" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A unix socket whose queue is full is waited for, like TCP does by itself.
func TestUnixBackendQueueFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	l, err := net.FileListener(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	b := balance.BackendSpec{Name: "unix", Addr: balance.Address{Unix: path}, Weight: 1}
	p := start(t, one(b))
	const n = 20
	var clients sync.WaitGroup
	for range n {
		c := p.dial()
		clients.Go(func() {
			if err := ping(c); err != nil {
				t.Error(err)
			}
			c.Close()
		})
	}
	eventually(t, "connections", func() bool { return p.Active() == n })
	time.Sleep(50 * time.Millisecond) // most of them are waiting for a place now
	serveOn(t, l, func(c net.Conn) { io.Copy(c, c) })
	clients.Wait()
	for _, s := range p.ended(n) {
		if s.Outcome != l4.OK {
			t.Errorf("outcome %v", s.Outcome)
		}
	}
}

func TestSourceAddress(t *testing.T) {
	peers := make(chan string, 1)
	source := netip.MustParseAddr("127.5.6.7")
	p := start(t, one(serve(t, func(c *net.TCPConn) { peers <- c.RemoteAddr().(*net.TCPAddr).IP.String() })),
		func(r *tcp.Route) { r.To.Source = source })
	p.dial()
	if got := <-peers; got != source.String() {
		t.Errorf("the backend sees %s", got)
	}
}

// A source address this host lacks is our fault, not the backend's.
func TestSourceAddressMissing(t *testing.T) {
	p := start(t, one(echo(t)), func(r *tcp.Route) { r.To.Source = netip.MustParseAddr("192.0.2.1") })
	if err := p.refused(); !isReset(err) {
		t.Errorf("the client sees %v", err)
	}
	p.outcome(l4.NoLocalPort)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.attempts) != 1 || !p.attempts[0].Local() {
		t.Errorf("reported %v", p.attempts)
	}
}

func TestServiceLimit(t *testing.T) {
	p := start(t, one(echo(t)), func(r *tcp.Route) { r.Spec.MaxConnections = 3 })
	var held []net.Conn
	for range 3 {
		c := p.dial()
		if err := ping(c); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	for range 5 {
		if err := p.refused(); !isReset(err) {
			t.Errorf("the client sees %v", err)
		}
	}
	for _, s := range p.ended(5) {
		if s.Outcome != l4.RefusedLimit {
			t.Errorf("outcome %v", s.Outcome)
		}
	}
	svc := p.Services()[0]
	if svc.Active() != 3 || svc.Stats.Accepted.Load() != 8 {
		t.Errorf("%d open, %d accepted", svc.Active(), svc.Stats.Accepted.Load())
	}
	held[0].Close()
	eventually(t, "a place", func() bool { return svc.Active() == 2 })
	if err := ping(p.dial()); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
	for _, c := range held {
		c.Close()
	}
}

func TestBackendLimit(t *testing.T) {
	a, b := echo(t), echo(t)
	a.MaxConnections, b.MaxConnections = 2, 1
	p := start(t, []balance.BackendSpec{a, b})
	for range 3 {
		if err := ping(p.dial()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.refused(); !isReset(err) {
		t.Errorf("the client sees %v", err)
	}
	p.outcome(l4.RefusedLimit)
	if got := []int64{p.pool.Backends()[0].Active(), p.pool.Backends()[1].Active()}; got[0] != 2 || got[1] != 1 {
		t.Errorf("open: %v", got)
	}
}
