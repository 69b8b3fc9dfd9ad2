package tcp_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

func admitting(spec admit.Spec) func(*tcp.Route) {
	return func(r *tcp.Route) { r.Admit = must(admit.New(spec, nil)) }
}

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// refused dials, says something, and returns how that, or else the connection, ends.
func (p *proxy) refused(says ...string) error {
	p.t.Helper()
	c, err := net.DialTimeout("tcp", p.addr, patience)
	if err != nil {
		return err // the reset was there before connect had been answered
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	for _, s := range says {
		if s != "" { // an empty write would hear of a reset, and the read no more
			io.WriteString(c, s)
		}
	}
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		return fmt.Errorf("%q, then %w", b, err)
	}
	return io.EOF
}

func TestRefusedByReset(t *testing.T) {
	for what, c := range map[string]struct {
		spec admit.Spec
		want l4.Outcome
	}{
		"denied":      {admit.Spec{Deny: prefixes("127.0.0.0/8")}, l4.RefusedACL},
		"not allowed": {admit.Spec{Allow: prefixes("10.0.0.0/8")}, l4.RefusedACL},
	} {
		t.Run(what, func(t *testing.T) {
			p := start(t, one(serve(t, func(*net.TCPConn) { t.Error("a backend is connected to") })), admitting(c.spec))
			if err := p.refused(); !isReset(err) {
				t.Errorf("the client sees %v", err)
			}
			if s := p.outcome(c.want); s.By != l4.Proxy || s.Backend != "" {
				t.Errorf("%+v", s)
			}
			if p.Active() != 0 || p.service().Active() != 0 {
				t.Error("it counts as open")
			}
		})
	}
}

// Silence is silence: neither an end nor a reset.
func TestRefusedBySilence(t *testing.T) {
	if !mayVanish(t) {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal("needs CAP_NET_ADMIN")
		}
		t.Skip("needs CAP_NET_ADMIN: without it a reset goes one hop, and the loopback is one")
	}
	p := start(t, one(echo(t)), admitting(admit.Spec{Deny: prefixes("127.0.0.0/8"), Silent: true}))
	c := p.dial()
	p.outcome(l4.RefusedACL)
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client hears of it: %d bytes, %v", n, err)
	}
}

// mayVanish reports whether this process may use TCP_REPAIR.
func mayVanish(t *testing.T) bool {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	const repair = 19
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, repair, 1) == nil
}

func TestRefusedByRate(t *testing.T) {
	p := start(t, one(echo(t)), admitting(admit.Spec{SourceRate: 1}))
	n := map[l4.Outcome]int{}
	for range 5 {
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			c.Close()
		}
	}
	for _, s := range p.ended(5) {
		n[s.Outcome]++
	}
	if n[l4.OK] == 0 || n[l4.RefusedRate] == 0 || n[l4.OK]+n[l4.RefusedRate] != 5 {
		t.Errorf("outcomes %v", n)
	}
}

// Behind a proxy it is the stated client that is judged, by name of its address.
func TestStatedClientIsJudged(t *testing.T) {
	for what, c := range map[string]struct {
		spec admit.Spec
		sent string
		want l4.Outcome
	}{
		"the client denied":      {admit.Spec{Deny: prefixes("192.0.2.0/24")}, proxyLine, l4.RefusedACL},
		"the proxy denied":       {admit.Spec{Deny: prefixes("127.0.0.0/8")}, proxyLine, l4.OK},
		"the client allowed":     {admit.Spec{Allow: prefixes("192.0.2.7/32")}, proxyLine, l4.OK},
		"only the proxy allowed": {admit.Spec{Allow: prefixes("127.0.0.0/8")}, proxyLine, l4.RefusedACL},
		"a check of the proxy":   {admit.Spec{Allow: prefixes("127.0.0.0/8")}, "PROXY UNKNOWN\r\n", l4.OK},
	} {
		t.Run(what, func(t *testing.T) {
			p := start(t, one(echo(t)), trusting(wire.AcceptAny), admitting(c.spec))
			client := p.dial()
			client.Write([]byte(c.sent))
			client.CloseWrite()
			if _, err := io.ReadAll(client); isReset(err) != (c.want != l4.OK) {
				t.Errorf("the client sees %v", err)
			}
			s := p.outcome(c.want)
			if c.sent == proxyLine && s.Flow.Client != theClient {
				t.Errorf("client %v", s.Flow.Client)
			}
		})
	}
}

// Whatever way a connection ends, its source has the place back.
func TestPerSourceIsReleased(t *testing.T) {
	fine := func(c *net.TCPConn) { ping(c) }
	whole := hello(t, "a.test")
	for what, c := range map[string]struct {
		adjust func(*tcp.Route)
		spec   func() balance.BackendSpec
		do     func(*net.TCPConn)
		want   l4.Outcome
	}{
		"orderly":       {nil, nil, fine, l4.OK},
		"client resets": {nil, nil, func(c *net.TCPConn) { ping(c); reset(c) }, l4.ClientReset},
		"backend resets": {nil, func() balance.BackendSpec {
			return serve(t, func(c *net.TCPConn) { c.Read(make([]byte, 1)); reset(c) })
		}, fine, l4.BackendReset},
		"no backend":      {nil, func() balance.BackendSpec { return dead(t) }, fine, l4.ConnectFailed},
		"backend timeout": {func(r *tcp.Route) { r.Spec.Connect = 100 * time.Millisecond }, func() balance.BackendSpec { return mute(t) }, fine, l4.ConnectTimeout},
		"no TLS":          {ending(t, nil), nil, func(c *net.TCPConn) { c.Write([]byte("GET /\r\n")); io.ReadAll(c) }, l4.TLSFailed},
		"silent in TLS": {func(r *tcp.Route) { ending(t, nil)(r); r.Spec.FirstBytes = 200 * time.Millisecond }, nil, func(c *net.TCPConn) {
			c.Write(whole)
			io.Copy(io.Discard, c)
		}, l4.FirstBytesTimeout},
		"no header":   {trusting(wire.AcceptAny), nil, func(c *net.TCPConn) { c.Write([]byte("GET /\r\n")); io.ReadAll(c) }, l4.BadProxyHeader},
		"with header": {trusting(wire.AcceptAny), nil, func(c *net.TCPConn) { c.Write([]byte(proxyLine)); ping(c) }, l4.OK},
		"no route": {func(r *tcp.Route) {
			r.To, r.SNI, r.Spec.FirstBytes = nil, tcp.NewSNI(nil), patience
		}, nil, func(c *net.TCPConn) { c.Write(whole); io.ReadAll(c) }, l4.BadTLSHello},
	} {
		t.Run(what, func(t *testing.T) {
			b := echo(t)
			if c.spec != nil {
				b = c.spec()
			}
			adjust := c.adjust
			if adjust == nil {
				adjust = func(*tcp.Route) {}
			}
			p := start(t, one(b), admitting(admit.Spec{PerSource: 1}), adjust)
			for i := range 3 {
				switch client, err := net.DialTimeout("tcp", p.addr, patience); {
				case err == nil:
					client.SetDeadline(time.Now().Add(patience))
					c.do(client.(*net.TCPConn))
					client.Close()
				case !isReset(err): // of one that is refused it may come that early
					t.Fatal(err)
				}
				if s := p.ended(i + 1)[i]; s.Outcome != c.want && !(c.want == l4.OK && s.Outcome == l4.ClientReset) {
					t.Errorf("connection %d: outcome %v, want %v", i, s.Outcome, c.want)
				}
				eventually(t, "it to be gone", func() bool { return p.Active() == 0 })
			}
		})
	}
}

// A second one of the same source is refused while the first is there, and it is
// also when the service itself is full.
func TestPerSourceAndServiceLimit(t *testing.T) {
	p := start(t, one(echo(t)), admitting(admit.Spec{PerSource: 1}))
	first := p.hold()
	if err := p.refused(); !isReset(err) {
		t.Errorf("the second sees %v", err)
	}
	first.Close()
	if s := p.ended(2)[0]; s.Outcome != l4.RefusedLimit {
		t.Errorf("outcome %v", s.Outcome)
	}

	full := start(t, one(echo(t)), admitting(admit.Spec{PerSource: 2}), func(r *tcp.Route) { r.Spec.MaxConnections = 1 })
	first = full.hold()
	for range 5 { // each takes a place of the source and gives it back
		full.refused()
	}
	first.Close()
	full.ended(6)
	eventually(t, "its place to be free", func() bool { return full.Active() == 0 })
	if err := ping(full.dial()); err != nil {
		t.Error(err)
	}
}

// Killed in the middle of a handshake, or of anything else.
func TestKilledIsReleased(t *testing.T) {
	p := start(t, one(echo(t)), ending(t, nil), admitting(admit.Spec{PerSource: 1}))
	for i := range 3 {
		c := p.dial()
		c.Write(hello(t, "a.test")[:100])
		p.shaking(1)
		p.Kill(l4.Killed)
		p.shaking(0)
		p.ended(i + 1)
		eventually(t, "its place to be free", func() bool { return p.Active() == 0 })
	}
	if err := ping(tls.Client(p.dial(), clientConfig())); err != nil {
		t.Error(err)
	}
}
