package metrics

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tcp"
)

// live is a Source over a running server, as the daemon's is.
type live struct {
	fake
	server *tcp.Server
	loops  loop.Group
}

func (l *live) Services() []*tcp.Service {
	l.server.Flush()
	return l.server.Services()
}

func (l *live) AcceptErrors() map[string]uint64         { return l.server.AcceptErrors() }
func (l *live) LoopBusy() (busy, total []time.Duration) { return l.loops.Busy() }

// echo is a backend that returns what it gets.
func echo(t *testing.T) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// refusing is an address nobody listens on, nor can: a socket is bound to it.
func refusing(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in := sa.(*syscall.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}

// free is an address that was free a moment ago.
func free(t *testing.T) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// A sampler scrapes all the time and holds every scrape to the promises.
type sampler struct {
	t    *testing.T
	reg  prometheus.Gatherer
	stop chan struct{}
	done sync.WaitGroup
	most map[string]float64 // the highest a gauge ever was
}

func startSampler(t *testing.T, reg prometheus.Gatherer) *sampler {
	s := &sampler{t: t, reg: reg, stop: make(chan struct{}), most: map[string]float64{}}
	s.done.Go(func() {
		var p promise
		for {
			scrape := gather(t, reg)
			p.check(t, scrape)
			for k, m := range scrape {
				if m.Gauge != nil {
					s.most[k] = max(s.most[k], number(m))
				}
			}
			select {
			case <-s.stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return s
}

func (s *sampler) end() { close(s.stop); s.done.Wait() }

// until scrapes until the series have the values.
func until(t *testing.T, reg prometheus.Gatherer, what string, values map[string]float64) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s := gather(t, reg)
		ok := true
		for k, v := range values {
			m := s[k]
			ok = ok && (m == nil && v == -1 || m != nil && number(m) == v)
		}
		if ok {
			return
		}
		if time.Now().After(end) {
			s.want(t, what, values)
			return
		}
	}
}

// Gauges that stay true through limits, refusals, reloads and removals
// (soketi/soketi#1195, sysown/proxysql#3112, jcmoraisjr/haproxy-ingress#897).
func TestGaugesStayTrue(t *testing.T) {
	loops, err := loop.Start(2)
	if err != nil {
		t.Fatal(err)
	}
	defer loops.Stop()
	server := tcp.NewServer(service.Host{Loops: loops, Descriptors: new(sock.Descriptors), Log: quiet()}, tcp.Hooks{})
	defer server.Close()
	a, b, dead := echo(t), echo(t), refusing(t)
	spec := func(name string, addrs ...netip.AddrPort) balance.Spec {
		s := balance.Spec{Name: name, Algorithm: "round-robin"}
		for i, addr := range addrs {
			s.Backends = append(s.Backends, balance.BackendSpec{
				Name: string(rune('a' + i)), Addr: balance.Address{AddrPort: addr}, Weight: 100,
			})
		}
		return s
	}
	good, bad := balance.New(spec("good", a, b), nil), balance.New(spec("bad", dead), nil)
	route := func(name string, addr netip.AddrPort, p *balance.Pool) tcp.Route {
		return tcp.Route{To: &tcp.Upstream{Pool: p}, Spec: tcp.Spec{
			Name: name, Listen: []l4.Listen{{Addr: addr}}, MaxConnections: 10,
			Connect: 5 * time.Second, ConnectTotal: 10 * time.Second, HalfClose: 30 * time.Second,
		}}
	}
	reload := func(routes []tcp.Route) {
		t.Helper()
		change, err := server.Prepare(routes)
		if err != nil {
			t.Fatal(err)
		}
		change.Commit()
	}
	var goodAddr, badAddr netip.AddrPort
	var routes []tcp.Route
	for { // until nobody else has taken the free addresses
		goodAddr, badAddr = free(t), free(t)
		routes = []tcp.Route{route("good", goodAddr, good), route("bad", badAddr, bad)}
		change, err := server.Prepare(routes)
		if err == nil {
			change.Commit()
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	src := &live{fake: fake{pools: []*balance.Pool{good, bad}}, server: server, loops: loops}
	reg := registry(src)
	samples := startSampler(t, reg)

	dial := func(addr netip.AddrPort) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	exchange := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}

	refused := func(addr netip.AddrPort) error {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			return err // the reset was quicker than the dial
		}
		defer c.Close()
		return exchange(c)
	}

	var open []net.Conn
	for range 10 {
		c := dial(goodAddr)
		if err := exchange(c); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for range 5 { // over the limit
		if refused(goodAddr) == nil {
			t.Error("an eleventh connection was let in")
		}
	}
	for range 3 { // nobody answers behind it
		if refused(badAddr) == nil {
			t.Error("a dead backend answered")
		}
	}
	until(t, reg, "ten open", map[string]float64{
		"poise_service_connections{service=good}":                                 10,
		"poise_service_connections{service=bad}":                                  0,
		"poise_service_connections_total{service=good}":                           15,
		"poise_service_connections_total{service=bad}":                            3,
		"poise_service_refused_total{reason=refused_limit,service=good}":          5,
		"poise_sessions_total{outcome=refused_limit,service=good}":                5,
		"poise_sessions_total{outcome=connect_failed,service=bad}":                3,
		"poise_service_bytes_total{direction=in,service=good}":                    10,
		"poise_service_bytes_total{direction=out,service=good}":                   10,
		"poise_backend_connections{backend=a,pool=good}":                          5,
		"poise_backend_connections{backend=b,pool=good}":                          5,
		"poise_backend_connections{backend=a,pool=bad}":                           0,
		"poise_backend_connect_failures_total{backend=a,pool=bad,reason=refused}": 3,
		"poise_session_duration_seconds{service=good}":                            0,
		"poise_session_duration_seconds{service=bad}":                             0,
	})

	// B goes, with its connections still open; so does its series, after them.
	good.Update(spec("good", a))
	reload(routes)
	until(t, reg, "B leaves", map[string]float64{
		"poise_backend_connections{backend=b,pool=good}":              5,
		"poise_backend_state{backend=b,pool=good,state=removed}":      1,
		"poise_pool_eligible_backends{pool=good}":                     1,
		"poise_backend_connections_total{backend=b,pool=good}":        5,
		"poise_backend_connect_duration_seconds{backend=b,pool=good}": 5,
	})
	for _, c := range open {
		c.Close()
	}
	until(t, reg, "all closed", map[string]float64{
		"poise_service_connections{service=good}":              0,
		"poise_sessions_total{outcome=ok,service=good}":        10,
		"poise_session_duration_seconds{service=good}":         10,
		"poise_backend_connections{backend=a,pool=good}":       0,
		"poise_backend_connections{backend=b,pool=good}":       -1,
		"poise_backend_connections_total{backend=b,pool=good}": -1,
	})

	// Reloads under load, B coming and going, the service too.
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := net.Dial("tcp", goodAddr.String()); err == nil {
					exchange(c)
					c.Close()
				}
			}
		})
	}
	for i := range 10 {
		if i%2 == 0 {
			good.Update(spec("good", a, b))
			reload(routes)
		} else {
			good.Update(spec("good", a))
			reload(routes[1:])
		}
		time.Sleep(30 * time.Millisecond) // some of the load
	}
	good.Update(spec("good", a, b))
	reload(routes)
	close(stop)
	load.Wait()
	until(t, reg, "at rest", map[string]float64{
		"poise_service_connections{service=good}":        0,
		"poise_backend_connections{backend=a,pool=good}": 0,
		"poise_backend_connections{backend=b,pool=good}": 0,
	})
	samples.end()
	s := gather(t, reg)
	ended := 0.0
	for o := range l4.NumOutcomes {
		ended += number(s[fmt.Sprintf("poise_sessions_total{outcome=%v,service=good}", l4.Outcome(o))])
	}
	if began := number(s["poise_service_connections_total{service=good}"]); began != ended || began < 16 {
		t.Errorf("%v connections began, %v ended", began, ended)
	}
	if most := samples.most["poise_service_connections{service=good}"]; most > 10 {
		t.Errorf("the gauge was at %v, the limit is 10", most)
	}
}
