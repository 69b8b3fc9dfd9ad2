package udp_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/udp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen; nothing is asserted
// about how soon within it.
const patience = 20 * time.Second

// proxy is a Server under test with one service and one pool.
type proxy struct {
	*udp.Server
	t     *testing.T
	addr  netip.AddrPort
	pool  *balance.Pool
	route udp.Route

	mu       sync.Mutex
	sessions []l4.Session
	answered map[string]int // by backend
	refused  map[string]int
	began    map[string]int
}

// start runs a proxy before the given backends; adjust may change its route.
func start(t *testing.T, backends []balance.BackendSpec, adjust ...func(*udp.Route)) *proxy {
	t.Helper()
	return startOn(t, 2, backends, adjust...)
}

// startOn is start with so many loops.
func startOn(t *testing.T, workers int, backends []balance.BackendSpec, adjust ...func(*udp.Route)) *proxy {
	t.Helper()
	p := &proxy{t: t, answered: map[string]int{}, refused: map[string]int{}, began: map[string]int{}}
	loops, err := loop.Start(workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loops.Stop)
	s := udp.NewServer(service.Host{Loops: loops, Descriptors: new(sock.Descriptors), Log: slog.New(slog.DiscardHandler)}, udp.Hooks{
		Began: func(b *balance.Backend) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.began[b.Name()]++
		},
		Answered: func(b *balance.Backend, ok bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.answered[b.Name()]++
		},
		Refused: func(b *balance.Backend) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.refused[b.Name()]++
		},
		Ended: func(s *l4.Session) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.sessions = append(p.sessions, *s)
		},
	})
	p.Server = s
	t.Cleanup(func() {
		s.Close()
		if n := p.Active(); n != 0 {
			t.Errorf("%d sessions are open after Close", n)
		}
		for _, b := range p.pool.Backends() {
			if b.Active() != 0 {
				t.Errorf("backend %s still has %d leases", b.Name(), b.Active())
			}
		}
	})
	p.pool = balance.New(balance.Spec{Name: "pool", Algorithm: "round-robin", Backends: backends}, nil)
	p.route = udp.Route{Spec: udp.Spec{Name: "service", Idle: time.Minute}, Pool: p.pool}
	p.route.Spec.Listen = []l4.Listen{{Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))}}
	for _, f := range adjust {
		f(&p.route)
	}
	p.addr = p.route.Spec.Listen[0].Addr
	p.run(p.route)
	return p
}

func (p *proxy) run(routes ...udp.Route) {
	p.t.Helper()
	c, err := p.Prepare(routes)
	if err != nil {
		p.t.Fatal(err)
	}
	c.Commit()
}

// freePort returns a port that is free on every address, below those that the kernel
// gives to clients (ip_local_port_range, from 32768), any of which might take it
// meanwhile.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(22000)
		c, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err == nil {
			c.Close()
			return uint16(port)
		}
	}
	t.Fatal("no free port")
	return 0
}

// dial opens a client's socket to an address of the proxy.
func (p *proxy) dial(to ...netip.AddrPort) *net.UDPConn {
	p.t.Helper()
	addr := p.addr
	if len(to) > 0 {
		addr = to[0]
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(addr))
	if err != nil {
		p.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	p.t.Cleanup(func() { c.Close() })
	return c
}

// dialFrom opens a client's socket with an address of its own.
func (p *proxy) dialFrom(a netip.Addr) *net.UDPConn {
	p.t.Helper()
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: a.AsSlice()}, net.UDPAddrFromAddrPort(p.addr))
	if err != nil {
		p.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	p.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a datagram and returns the reply.
func ask(t *testing.T, c *net.UDPConn, question string) string {
	t.Helper()
	if _, err := c.Write([]byte(question)); err != nil {
		t.Fatal(err)
	}
	return reply(t, c)
}

func reply(t *testing.T, c *net.UDPConn) string {
	t.Helper()
	buf := make([]byte, 65536)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// ended waits for n sessions to have ended and returns them.
func (p *proxy) ended(n int) []l4.Session {
	p.t.Helper()
	var got []l4.Session
	eventually(p.t, fmt.Sprintf("%d sessions to end", n), func() bool {
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

func (p *proxy) stats() *udp.ServiceStats {
	p.t.Helper()
	p.Flush()
	s := p.Services()
	if len(s) != 1 {
		p.t.Fatalf("%d services", len(s))
	}
	return &s[0].Stats
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

// A server is a backend under test.
type server struct {
	*net.UDPConn
	spec balance.BackendSpec
	done sync.WaitGroup

	mu   sync.Mutex
	from map[netip.AddrPort]int // datagrams, by sender
	got  int
}

// serve runs a backend that returns what answer makes of a datagram; nil is no reply.
func serve(t *testing.T, name, addr string, answer func([]byte) []byte) *server {
	t.Helper()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{UDPConn: c.(*net.UDPConn), from: map[netip.AddrPort]int{}}
	s.SetReadBuffer(4 << 20)
	s.SetWriteBuffer(4 << 20)
	s.spec = balance.BackendSpec{Name: name, Weight: 100}
	s.spec.Addr.AddrPort = netip.MustParseAddrPort(c.LocalAddr().String())
	s.done.Go(func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := s.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.from[from]++
			s.got++
			s.mu.Unlock()
			if b := answer(buf[:n]); b != nil {
				s.WriteToUDPAddrPort(b, from)
			}
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	s.Close()
	s.done.Wait()
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func (s *server) senders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.from)
}

// echo is a backend that returns what it gets.
func echo(t *testing.T, name string) *server {
	return serve(t, name, "127.0.0.1:0", func(b []byte) []byte { return b })
}

// named is a backend that answers with its name.
func named(t *testing.T, name string) *server {
	return serve(t, name, "127.0.0.1:0", func([]byte) []byte { return []byte(name) })
}

// sink is a backend that never answers.
func sink(t *testing.T, name string) *server {
	return serve(t, name, "127.0.0.1:0", func([]byte) []byte { return nil })
}

func specs(servers ...*server) (list []balance.BackendSpec) {
	for _, s := range servers {
		list = append(list, s.spec)
	}
	return list
}

func TestEcho(t *testing.T) {
	p := start(t, specs(echo(t, "a")))
	c := p.dial()
	for i := range 100 {
		q := fmt.Sprintf("question %d", i)
		if got := ask(t, c, q); got != q {
			t.Fatalf("got %q", got)
		}
	}
	st := p.stats()
	if in, out := st.DatagramsIn.Load(), st.DatagramsOut.Load(); in != 100 || out != 100 {
		t.Errorf("%d in, %d out", in, out)
	}
}
