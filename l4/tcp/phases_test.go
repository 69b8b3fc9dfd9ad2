package tcp_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

// A stage is a way to bring a connection into a phase and leave it there.
type stage struct {
	name    string
	backend func(*testing.T) balance.BackendSpec
	adjust  func(*testing.T, *tcp.Route)
	client  func(*testing.T, *proxy, *net.TCPConn)
	reached func(*proxy) bool
}

// silentBackend is one that takes everything and says nothing.
func silentBackend(t *testing.T) balance.BackendSpec {
	return serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
}

// in is whether the one connection there is is in a state.
func in(state string) func(*proxy) bool {
	return func(p *proxy) bool {
		conns := p.Conns(10, "", "")
		return len(conns) == 1 && conns[0].State == state
	}
}

var stages = []stage{
	{
		name: "greeting", backend: echo,
		adjust:  func(t *testing.T, r *tcp.Route) { trusting(wire.AcceptAny)(r) },
		client:  func(_ *testing.T, _ *proxy, c *net.TCPConn) { c.Write([]byte("PROXY ")) },
		reached: in("greeting"),
	},
	{
		name: "securing", backend: echo,
		adjust:  func(t *testing.T, r *tcp.Route) { ending(t, nil)(r) },
		client:  func(t *testing.T, _ *proxy, c *net.TCPConn) { c.Write(hello(t, "a.test")) },
		reached: func(p *proxy) bool { return p.service().Stats.HandshakesActive.Load() == 1 },
	},
	{
		name: "connecting", backend: mute,
		reached: in("connecting"),
	},
	{
		name: "asking", backend: silentBackend,
		adjust:  func(t *testing.T, r *tcp.Route) { r.To.TLS, r.To.StartTLS = backendTLS(t), true },
		reached: in("connecting"),
	},
	{
		name: "verifying", backend: silentBackend,
		adjust:  func(t *testing.T, r *tcp.Route) { r.To.TLS = backendTLS(t) },
		reached: in("connecting"),
	},
	{
		name: "relaying", backend: silentBackend,
		client:  func(_ *testing.T, _ *proxy, c *net.TCPConn) { c.Write([]byte("x")) },
		reached: in("open"),
	},
	{
		name: "relaying TLS", backend: func(t *testing.T) balance.BackendSpec {
			return secureEcho(t, "x", &tls.Config{Certificates: []tls.Certificate{creds().pair}})
		},
		adjust: func(t *testing.T, r *tcp.Route) { ending(t, nil)(r); r.To.TLS = backendTLS(t) },
		client: func(t *testing.T, _ *proxy, c *net.TCPConn) {
			e := tls.Client(c, clientConfig())
			io.ReadFull(e, make([]byte, 1))
		},
		reached: in("open"),
	},
}

// Whatever a connection is in the middle of, it can be ended: by the operator, by
// its client, with the server. Nothing of it stays.
func TestEndedInEveryPhase(t *testing.T) {
	endings := map[string]func(*proxy, *net.TCPConn){
		"kill":          func(p *proxy, _ *net.TCPConn) { p.Kill(l4.Killed) },
		"server closes": func(p *proxy, _ *net.TCPConn) { p.Close() },
		"client resets": func(_ *proxy, c *net.TCPConn) { reset(c) },
	}
	for _, s := range stages {
		for what, end := range endings {
			t.Run(s.name+", "+what, func(t *testing.T) {
				p := start(t, one(s.backend(t)), func(r *tcp.Route) {
					r.Spec.Connect, r.Spec.ConnectTotal, r.Spec.FirstBytes = patience, patience, patience
					if s.adjust != nil {
						s.adjust(t, r)
					}
				})
				before := descriptors(t)
				c := p.dial()
				if s.client != nil {
					s.client(t, p, c)
				}
				eventually(t, "the phase", func() bool { return s.reached(p) })
				time.Sleep(5 * time.Millisecond) // and a little into it
				end(p, c)
				p.ended(1)
				c.Close()
				if n := p.Active(); n != 0 {
					t.Errorf("%d are open", n)
				}
				if what == "server closes" {
					return // its own descriptors are gone too
				}
				if n := p.service().Stats.HandshakesActive.Load(); n != 0 {
					t.Errorf("%d handshakes are under way", n)
				}
				eventually(t, "descriptors to be closed", func() bool { return descriptors(t) <= before })
			})
		}
	}
}

// A backend that goes while it is being connected to is replaced, at whatever step
// that is.
func TestCloseBackendInEveryPhase(t *testing.T) {
	for _, s := range stages {
		if s.name != "connecting" && s.name != "asking" && s.name != "verifying" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			bad := named(s.backend(t), "bad")
			good := echo(t)
			switch s.name {
			case "asking":
				good = postgres(t, "good", "S")
			case "verifying":
				good = secureEcho(t, "good ", &tls.Config{Certificates: []tls.Certificate{creds().pair}})
			}
			p := start(t, []balance.BackendSpec{bad, good}, func(r *tcp.Route) {
				r.Spec.Connect, r.Spec.ConnectTotal = patience, patience
				if s.adjust != nil {
					s.adjust(t, r)
				}
			})
			p.firstIs(bad, good)
			c := p.dial()
			c.Write([]byte(pgStart))
			eventually(t, "the phase", func() bool { return s.reached(p) })
			time.Sleep(5 * time.Millisecond)
			p.CloseBackend(p.pool.Backends()[0], l4.BackendDown, 0)
			if n, err := c.Read(make([]byte, 100)); n == 0 {
				t.Errorf("nothing of the other backend: %v", err)
			}
			c.Close()
			p.ended(1)
		})
	}
}

// Those that are not yet on their way to it are left alone.
func TestCloseBackendLeavesGreetingAlone(t *testing.T) {
	p := start(t, one(echo(t)), trusting(wire.AcceptAny))
	c := p.dial()
	c.Write([]byte(proxyLine[:10]))
	eventually(t, "the phase", func() bool { return in("greeting")(p) })
	p.CloseBackend(p.pool.Backends()[0], l4.BackendDown, 0)
	p.Flush() // waits for the loops
	c.Write([]byte(proxyLine[10:]))
	if err := ping(c); err != nil {
		t.Error(err)
	}
}
