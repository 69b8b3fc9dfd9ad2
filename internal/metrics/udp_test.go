package metrics

import (
	"errors"
	"net"
	"net/netip"
	"sync"
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

// liveUDP is a Source over a running server of datagrams.
type liveUDP struct {
	fake
	server *udp.Server
}

func (l *liveUDP) UDPServices() []*udp.Service {
	l.server.Flush()
	return l.server.Services()
}

// echoUDP is a backend that returns each datagram.
func echoUDP(t *testing.T) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteToUDPAddrPort(buf[:n], from)
		}
	})
	t.Cleanup(func() { pc.Close(); wg.Wait() })
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

// freeUDP is an address that was free a moment ago.
func freeUDP(t *testing.T) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

// Sessions and datagrams of a running server, up to and over its limit.
func TestUDPServer(t *testing.T) {
	loops, err := loop.Start(2)
	if err != nil {
		t.Fatal(err)
	}
	defer loops.Stop()
	server := udp.NewServer(service.Host{Loops: loops, Descriptors: new(sock.Descriptors), Log: quiet()}, udp.Hooks{})
	defer server.Close()
	spec := poolSpec("p", balance.BackendSpec{Name: "a", Addr: balance.Address{AddrPort: echoUDP(t)}, Weight: 100})
	pool := balance.New(spec, nil)
	var addr netip.AddrPort
	for { // until nobody else has taken the free address
		addr = freeUDP(t)
		change, err := server.Prepare([]udp.Route{{Pool: pool, Spec: udp.Spec{
			Name: "dns", Listen: []l4.Listen{{Addr: addr}}, Idle: time.Hour, MaxSessions: 3,
		}}})
		if err == nil {
			change.Commit()
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	reg := registry(&liveUDP{fake: fake{pools: []*balance.Pool{pool}}, server: server})

	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("udp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range 3 {
		c := dial()
		for range 2 {
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 16)
			if n, err := c.Read(buf); err != nil || n != 5 {
				t.Fatal(n, err)
			}
		}
	}
	if _, err := dial().Write([]byte("one too many")); err != nil {
		t.Fatal(err)
	}
	until(t, reg, "three open, one refused", map[string]float64{
		"poise_service_connections{service=dns}":                        3,
		"poise_service_connections_total{service=dns}":                  4,
		"poise_service_refused_total{reason=refused_limit,service=dns}": 1,
		"poise_udp_dropped_total{reason=refused,service=dns}":           1,
		"poise_service_datagrams_total{direction=in,service=dns}":       6,
		"poise_service_datagrams_total{direction=out,service=dns}":      6,
		"poise_service_bytes_total{direction=in,service=dns}":           30,
		"poise_service_bytes_total{direction=out,service=dns}":          30,
		"poise_backend_connections{backend=a,pool=p}":                   3,
		"poise_backend_connections_total{backend=a,pool=p}":             3,
		"poise_backend_bytes_total{backend=a,direction=out,pool=p}":     30,
	})
	server.Kill(l4.Killed)
	until(t, reg, "none left", map[string]float64{
		"poise_service_connections{service=dns}":           0,
		"poise_sessions_total{outcome=killed,service=dns}": 3,
		"poise_session_duration_seconds{service=dns}":      3,
		"poise_service_connections_total{service=dns}":     4,
		"poise_backend_connections{backend=a,pool=p}":      0,
	})
}
