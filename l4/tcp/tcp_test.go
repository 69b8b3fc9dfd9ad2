package tcp_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen; nothing is asserted
// about how soon within it.
const patience = 20 * time.Second

// proxy is a Server under test with one service and one pool.
type proxy struct {
	*tcp.Server
	t     *testing.T
	loops loop.Group
	addr  string
	pool  *balance.Pool
	route tcp.Route

	mu       sync.Mutex
	sessions []l4.Session
	attempts []l4.ConnectReason
	evidence []l4.Evidence
}

// start runs a proxy before the given backends; adjust may change its route.
func start(t *testing.T, backends []balance.BackendSpec, adjust ...func(*tcp.Route)) *proxy {
	t.Helper()
	return startOn(t, 2, backends, adjust...)
}

// startOn is start with a number of loops.
func startOn(t *testing.T, n int, backends []balance.BackendSpec, adjust ...func(*tcp.Route)) *proxy {
	t.Helper()
	p := &proxy{t: t}
	log := slog.New(slog.DiscardHandler)
	loops, err := loop.Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loops.Stop)
	s := tcp.NewServer(service.Host{Loops: loops, Descriptors: new(sock.Descriptors), Log: log}, tcp.Hooks{
		Connected: func(_ *balance.Backend, r l4.ConnectReason) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.attempts = append(p.attempts, r)
		},
		Fared: func(_ *balance.Backend, e l4.Evidence, client netip.Addr) {
			if !client.IsValid() {
				t.Errorf("the client of some evidence is %s", client)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.evidence = append(p.evidence, e)
		},
		Ended: func(s *l4.Session) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.sessions = append(p.sessions, *s)
		},
	})
	p.Server, p.loops = s, loops
	t.Cleanup(s.Close)
	p.pool = balance.New(balance.Spec{Name: "pool", Algorithm: "round-robin", Backends: backends}, nil)
	p.route = tcp.Route{Spec: spec("service"), To: &tcp.Upstream{Pool: p.pool}}
	p.route.Spec.Listen = []l4.Listen{{Addr: freeAddr(t)}}
	for _, f := range adjust {
		f(&p.route)
	}
	p.addr = p.route.Spec.Listen[0].Addr.String()
	p.run(p.route)
	t.Cleanup(func() {
		eventually(t, "every connection to have ended", func() bool { return p.Active() == 0 })
		for _, b := range p.pool.Backends() {
			if b.Active() != 0 {
				t.Errorf("backend %s still has %d leases", b.Name(), b.Active())
			}
		}
	})
	return p
}

func (p *proxy) run(routes ...tcp.Route) {
	p.t.Helper()
	c, err := p.Prepare(routes)
	if err != nil {
		p.t.Fatal(err)
	}
	c.Commit()
}

func spec(name string) tcp.Spec {
	return tcp.Spec{
		Name: name, Connect: 2 * time.Second, ConnectTotal: 10 * time.Second,
		Idle: time.Minute, HalfClose: 30 * time.Second, Retries: 2,
	}
}

// freeAddr returns a loopback address nobody listens on, with a port that is free
// on every address. It is below those the kernel gives to outgoing connections
// (ip_local_port_range, from 32768), any of which might take it meanwhile.
func freeAddr(t *testing.T) netip.AddrPort {
	t.Helper()
	for range 100 {
		port := uint16(10000 + rand.IntN(22000))
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err == nil {
			l.Close()
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
		}
	}
	t.Fatal("no free port")
	return netip.AddrPort{}
}

func (p *proxy) dial() *net.TCPConn {
	p.t.Helper()
	c, err := net.DialTimeout("tcp", p.addr, patience)
	if err != nil {
		p.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	p.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// ended waits for n sessions to have ended and returns them.
func (p *proxy) ended(n int) []l4.Session {
	p.t.Helper()
	var got []l4.Session
	eventually(p.t, "sessions to end", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		got = slices.Clone(p.sessions)
		return len(got) >= n
	})
	if len(got) != n {
		p.t.Fatalf("%d sessions ended, want %d", len(got), n)
	}
	return got
}

func (p *proxy) outcome(want l4.Outcome) l4.Session {
	p.t.Helper()
	s := p.ended(1)[0]
	if s.Outcome != want {
		p.t.Errorf("outcome %v, want %v", s.Outcome, want)
	}
	return s
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// serve runs handle for every connection to a new backend.
func serve(t *testing.T, handle func(*net.TCPConn)) balance.BackendSpec {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, func(c net.Conn) { handle(c.(*net.TCPConn)) })
}

func serveOn(t *testing.T, l net.Listener, handle func(net.Conn)) balance.BackendSpec {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(2 * patience))
			mu.Lock()
			open[c] = true
			mu.Unlock()
			running.Go(func() {
				handle(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	b := balance.BackendSpec{Name: l.Addr().String(), Weight: 100}
	if l.Addr().Network() == "unix" {
		b.Addr.Unix = l.Addr().String()
	} else {
		b.Addr.AddrPort = netip.MustParseAddrPort(l.Addr().String())
	}
	return b
}

func one(b balance.BackendSpec) []balance.BackendSpec { return []balance.BackendSpec{b} }

// echo is a backend that returns what it gets.
func echo(t *testing.T) balance.BackendSpec {
	return serve(t, func(c *net.TCPConn) {
		io.Copy(c, c)
		c.CloseWrite()
	})
}

// dead is a backend nobody listens at.
func dead(t *testing.T) balance.BackendSpec {
	a := freeAddr(t)
	return balance.BackendSpec{Name: "dead", Addr: balance.Address{AddrPort: a}, Weight: 100}
}

// mute is a backend that never completes a handshake: its accept queue is full.
func mute(t *testing.T) balance.BackendSpec {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(sa.(*syscall.SockaddrInet4).Port))
	for range 8 { // until the kernel drops SYNs
		c, err := net.DialTimeout("tcp", addr.String(), 200*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { c.Close() })
	}
	return balance.BackendSpec{Name: "mute", Addr: balance.Address{AddrPort: addr}, Weight: 100}
}

// reset closes c so that its peer sees a reset.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

// descriptors counts this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	// io.Copy in the tests' own backends leaves pipes in a pool, which lets go of
	// what has been there for two collections.
	runtime.GC()
	runtime.GC()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
