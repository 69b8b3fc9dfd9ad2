package udp_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

// retrying has requests with so many replies each repeated.
func retrying(replies int) func(*udp.Route) {
	return func(r *udp.Route) { r.Spec.Replies, r.Spec.Retry = replies, true }
}

// dead is a backend at a port without a listener.
func dead(t *testing.T, name string) balance.BackendSpec {
	b := balance.BackendSpec{Name: name, Weight: 100}
	b.Addr.AddrPort = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	return b
}

// inOrder has the first backend that is eligible chosen.
func inOrder(p *proxy) {
	s := p.pool.Spec()
	s.Algorithm = "first"
	p.pool.Update(s)
}

// down says that a backend is, as a check would.
func (p *proxy) down(i int) {
	b := p.pool.Backends()[i]
	p.pool.SetFlag(b.ID(), balance.Down, true)
	p.Repeat(b)
}

// silent is a backend that notes what it gets, and says nothing.
type silent struct {
	*server
	mu  sync.Mutex
	got []string
}

func mute(t *testing.T, name string) *silent {
	s := new(silent)
	s.server = serve(t, name, "127.0.0.1:0", func(b []byte) []byte {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, string(b))
		return nil
	})
	return s
}

func (s *silent) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// What a backend refuses another one answers, and its client does not notice. Before,
// the client heard nothing.
func TestRefusedRequestIsRepeated(t *testing.T) {
	p := start(t, append([]balance.BackendSpec{dead(t, "dead")}, specs(named(t, "b"))...), retrying(1))
	inOrder(p)
	if got := ask(t, p.dial(), "x"); got != "b" {
		t.Fatalf("got %q", got)
	}
	s := p.ended(1)[0]
	if s.Backend != "b" || s.Retries != 1 || s.Outcome != l4.OK || s.DatagramsIn != 1 || s.DatagramsOut != 1 || s.Wait+s.FirstByte > s.Total {
		t.Errorf("%+v", s)
	}
	if n := p.stats().Retries.Load(); n != 1 {
		t.Errorf("%d retries are counted", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused["dead"] != 1 || p.answered["b"] != 1 || p.began["b"] != 1 {
		t.Errorf("refused %v, answered %v, began %v", p.refused, p.answered, p.began)
	}
	for _, b := range p.pool.Backends() {
		if b.Active() != 0 {
			t.Errorf("%s has %d leases", b.Name(), b.Active())
		}
	}
}

// Both questions of a resolver go to the other backend when the first goes down; what it
// says afterwards reaches no client.
func TestUnansweredRequestsAreRepeated(t *testing.T) {
	hung := mute(t, "a")
	p := start(t, specs(hung.server, echo(t, "b")), retrying(1))
	inOrder(p)
	c := p.dial()
	for _, q := range []string{"A?", "AAAA?"} {
		c.Write([]byte(q))
	}
	eventually(t, "both to arrive", func() bool { return len(hung.heard()) == 2 })
	p.down(0)
	for _, q := range []string{"A?", "AAAA?"} {
		if got := reply(t, c); got != q {
			t.Errorf("got %q, want %q", got, q)
		}
	}
	s := p.ended(1)[0]
	if s.Backend != "b" || s.Retries != 1 || s.DatagramsIn != 2 || s.DatagramsOut != 2 || s.BytesIn != 7 || s.BytesOut != 7 {
		t.Errorf("%+v", s)
	}
	// Each backend was sent both; the client has sent them once.
	a, b, svc := &p.pool.Backends()[0].Stats, &p.pool.Backends()[1].Stats, p.stats()
	if a.BytesIn.Load() != 7 || b.BytesIn.Load() != 7 || a.BytesOut.Load() != 0 || b.BytesOut.Load() != 7 {
		t.Errorf("the backends count %d and %d bytes in, %d and %d out", a.BytesIn.Load(), b.BytesIn.Load(), a.BytesOut.Load(), b.BytesOut.Load())
	}
	if svc.BytesIn.Load() != 7 || svc.DatagramsIn.Load() != 2 || svc.BytesOut.Load() != 7 || svc.DatagramsOut.Load() != 2 {
		t.Errorf("the service counts %d bytes in %d datagrams, %d out in %d", svc.BytesIn.Load(), svc.DatagramsIn.Load(), svc.BytesOut.Load(), svc.DatagramsOut.Load())
	}
	for from := range hung.from {
		hung.WriteToUDPAddrPort([]byte("late"), from)
	}
	if foreign, n := hears(c, 0, 50*time.Millisecond); n != 0 {
		t.Error(foreign)
	}
}

// Once, and not for ever: if the other one is dead too the client hears nothing.
func TestRepeatedOnce(t *testing.T) {
	hung := mute(t, "c")
	p := start(t, append([]balance.BackendSpec{dead(t, "a"), dead(t, "b")}, hung.spec), retrying(1),
		func(r *udp.Route) { r.Spec.Idle = 200 * time.Millisecond })
	inOrder(p)
	p.dial().Write([]byte("x"))
	s := p.ended(1)[0]
	if s.Backend != "b" || s.Retries != 1 || s.Outcome != l4.Idle || s.By != l4.Backend || len(hung.heard()) != 0 {
		t.Errorf("%+v, c has got %q", s, hung.heard())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused["a"] != 1 || p.refused["b"] != 1 {
		t.Errorf("refused %v", p.refused)
	}
}

// What is not kept is not repeated: too large, more than a client waits for, answered in
// part, without a retry left, or switched off.
func TestNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		send   []string
		adjust func(*udp.Route)
		budget balance.RetryBudget
		want   uint64 // retries that the budget has denied
	}{
		"too large": {send: []string{strings.Repeat("x", 2049)}},
		"too many":  {send: []string{"1", "2", "3", "4", "5"}},
		"switched off": {send: []string{"x"}, adjust: func(r *udp.Route) {
			r.Spec.Retry = false
		}},
		"budget": {send: []string{"x"}, budget: balance.RetryBudget{Percent: 1}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			hung, other := mute(t, "a"), mute(t, "b")
			p := start(t, specs(hung.server, other.server), retrying(1))
			if c.adjust != nil {
				c.adjust(&p.route)
				p.run(p.route)
			}
			spec := p.pool.Spec()
			spec.Algorithm, spec.Retry = "first", c.budget
			p.pool.Update(spec)
			conn := p.dial()
			for _, q := range c.send {
				conn.Write([]byte(q))
			}
			eventually(t, "it to arrive", func() bool { return len(hung.heard()) == len(c.send) })
			p.down(0)
			// What comes next shows that what was to be repeated has been.
			p.dial().Write([]byte("next"))
			eventually(t, "the next one", func() bool { return len(other.heard()) > 0 })
			p.Flush()
			if got := other.heard(); len(got) != 1 || got[0] != "next" || p.stats().Retries.Load() != 0 {
				t.Errorf("%q was repeated", got)
			}
			if n := p.pool.Snapshot().Denied; n != c.want {
				t.Errorf("%d retries were denied", n)
			}
		})
	}
}

// A client whose requests have no answer uses up repetitions, but not those of clients
// whose backend refuses. Before, these heard nothing.
func TestBudgetOutlastsUnanswered(t *testing.T) {
	hung, other := mute(t, "a"), mute(t, "b")
	p := start(t, append(specs(hung.server, other.server), dead(t, "dead"), named(t, "d").spec), retrying(1))
	spec := p.pool.Spec()
	spec.Algorithm, spec.Retry = "first", balance.RetryBudget{Floor: 1} // ten in ten seconds
	p.pool.Update(spec)
	const attacks, honest = 20, 4
	for i := range attacks {
		p.dialFrom(netip.MustParseAddr("127.0.0.2")).Write([]byte("nonsense"))
		eventually(t, "it to arrive", func() bool { return len(hung.heard()) == i+1 })
	}
	p.down(0)
	eventually(t, "some to be repeated", func() bool { return p.pool.Snapshot().Denied+uint64(len(other.heard())) == attacks })
	repeated := len(other.heard())
	p.down(1)
	answered := 0
	for range honest {
		c := p.dial()
		c.SetDeadline(time.Now().Add(patience / 4))
		c.Write([]byte("x"))
		if n, _ := c.Read(make([]byte, 10)); n == 0 {
			break
		}
		answered++
	}
	if answered != honest {
		t.Errorf("%d of %d clients of a dead backend had an answer, after %d repetitions for one that has none", answered, honest, repeated)
	}
}

// With one reply there of two, another backend's second might not belong to the first.
func TestPartlyAnsweredIsNotRepeated(t *testing.T) {
	other := mute(t, "b")
	p := start(t, specs(named(t, "a"), other.server), retrying(2))
	inOrder(p)
	ask(t, p.dial(), "x")
	p.down(0)
	p.dial().Write([]byte("next"))
	eventually(t, "the next one", func() bool { return len(other.heard()) > 0 })
	if got := other.heard(); len(got) != 1 || got[0] != "next" || p.stats().Retries.Load() != 0 {
		t.Errorf("%q was repeated", got)
	}
}

// However many wait, a loop keeps so many of their requests: the youngest. Its memory is
// used again.
func TestKeptIsBounded(t *testing.T) {
	const kept, more = 1024, 76
	hung, other := mute(t, "a"), mute(t, "b")
	p := startOn(t, 1, specs(hung.server, other.server), retrying(1))
	inOrder(p)
	for i := range kept + more {
		p.dial().Write(fmt.Append(nil, i))
		if i%50 == 49 {
			eventually(t, "them to arrive", func() bool { return len(hung.heard()) == i+1 })
		}
	}
	p.down(0)
	eventually(t, "them to be repeated", func() bool { return len(other.heard()) == kept })
	got := other.heard()
	for i := range more {
		if slices.Contains(got, fmt.Sprint(i)) {
			t.Errorf("request %d was repeated, and younger ones were not", i)
		}
	}
	if n := p.stats().Retries.Load(); n != kept {
		t.Errorf("%d retries", n)
	}
	if made := p.Kept(); made != kept {
		t.Errorf("room for %d requests", made)
	}
}

// The other backend gets the PROXY header too, and is told of the same client.
func TestHeaderIsRepeated(t *testing.T) {
	for _, header := range []udp.SendProxy{udp.ProxyFirst, udp.ProxyEach} {
		hung, other := mute(t, "a"), mute(t, "b")
		p := start(t, specs(hung.server, other.server), retrying(1), func(r *udp.Route) { r.SendProxy = header })
		inOrder(p)
		c := p.dial()
		c.Write([]byte("one"))
		c.Write([]byte("two"))
		eventually(t, "both to arrive", func() bool { return len(hung.heard()) == 2 })
		p.down(0)
		eventually(t, "both to be repeated", func() bool { return len(other.heard()) == 2 })
		first, again := hung.heard(), other.heard()
		if !slices.Equal(first, again) {
			t.Errorf("%q, and then %q", first, again)
		}
		h, rest := stated(t, []byte(again[0]))
		if string(rest) != "one" || h.Source != netip.MustParseAddrPort(c.LocalAddr().String()) {
			t.Errorf("%v, %q", h.Source, rest)
		}
	}
}

// A port that was given up for another backend rests towards the first: its late reply
// reaches no client. There is no descriptor or port left over.
func TestPortRestsAfterRepeating(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50015") // of which sessions have 12
	a, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9000})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p := start(t, append(backendAt("a", a.LocalAddr()), serve(t, "b", "127.0.0.1:9002", func(b []byte) []byte { return b }).spec),
		fromElsewhere, retrying(1))
	inOrder(p)
	before := descriptors(t)
	var clients []*net.UDPConn
	var from []netip.AddrPort
	buf := make([]byte, 100)
	a.SetDeadline(time.Now().Add(patience))
	for i := range 8 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)}))
		c.Write(question(i, 0, 0))
		_, at, err := a.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		clients, from = append(clients, c), append(from, at)
	}
	p.down(0)
	for i, c := range clients {
		if got := reply(t, c); got != string(question(i, 0, 0)) {
			t.Errorf("client %d got %q", i, got)
		}
	}
	p.ended(8)
	p.pool.SetFlag(p.pool.Backends()[0].ID(), balance.Down, false)
	for i := range 8 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 2, byte(1 + i)}))
		c.Write(question(100+i, 0, 0))
		_, at, err := a.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(from, at) {
			t.Errorf("the port of %v is used again", at)
		}
		clients = append(clients, c)
	}
	for i, at := range from {
		a.WriteToUDPAddrPort(question(i, 1, 0), at)
	}
	for i, c := range clients[8:] {
		if foreign, n := hears(c, 100+i, 10*time.Millisecond); n != 0 {
			t.Error(foreign)
		}
	}
	p.Kill(l4.Killed)
	eventually(t, "the sessions to end", func() bool { return p.Active() == 0 })
	for _, c := range clients {
		c.Close()
	}
	eventually(t, "the descriptors", func() bool { return descriptors(t) == before })
}
