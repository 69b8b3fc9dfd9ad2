package udp_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

func spray(r *udp.Route) { r.Spec.Spray = true }

// Every datagram of one client is balanced by itself, those of a train too.
func TestSpray(t *testing.T) {
	a, b, c := sink(t, "a"), sink(t, "b"), sink(t, "c")
	p := start(t, specs(a, b, c), spray)
	conn := p.dial()
	for range 150 {
		if _, err := conn.Write([]byte("line")); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if err := sendTrain(conn, random(30*100), 100); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*server{a, b, c} {
		eventually(t, "its third of the datagrams to reach "+s.spec.Name, func() bool { return s.count() == 100 })
	}
	if p.Active() != 0 {
		t.Errorf("%d sessions", p.Active())
	}
	st := p.stats()
	if in, n := st.DatagramsIn.Load(), st.BytesIn.Load(); in != 300 || n != 150*4+5*30*100 {
		t.Errorf("%d datagrams, %d bytes", in, n)
	}
	for _, backend := range p.pool.Backends() {
		if backend.Active() != 0 || backend.Total() != 100 || backend.Stats.Datagrams.Load() != 100 {
			t.Errorf("%s: %d active, %d in all, %d counted", backend.Name(), backend.Active(), backend.Total(), backend.Stats.Datagrams.Load())
		}
	}
}

// A backend that goes gets nothing more, and one that refuses is told of.
func TestSprayFollowsThePool(t *testing.T) {
	a, b := sink(t, "a"), sink(t, "b")
	p := start(t, specs(a, b), spray)
	p.send(time.Millisecond)
	a.arrives(t)
	b.arrives(t)
	b.stop()
	eventually(t, "a hint", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.refused["b"] > 3 && p.refused["a"] == 0
	})
	id := balance.BackendID{Name: "b", Addr: b.spec.Addr}
	p.pool.SetFlag(id, balance.Down, true)
	a.arrives(t)
	p.pool.SetFlag(balance.BackendID{Name: "a", Addr: a.spec.Addr}, balance.Down, true)
	st := p.stats()
	eventually(t, "datagrams to be dropped", func() bool { return st.Dropped[udp.DropRefused].Load() > 0 })
	if st.Outcomes[l4.NoBackend].Load() == 0 {
		t.Error("they have no outcome")
	}
	p.pool.SetFlag(balance.BackendID{Name: "a", Addr: a.spec.Addr}, balance.Down, false)
	a.arrives(t)
}

// Each datagram says who it is from, whatever else is in its batch.
func TestSprayProxyHeader(t *testing.T) {
	got := make(chan []byte, 100)
	back := serve(t, "a", "127.0.0.1:0", func(b []byte) []byte { got <- bytes.Clone(b); return nil })
	p := start(t, specs(back), on(t, "0.0.0.0", false), spray, func(r *udp.Route) { r.SendProxy = udp.ProxyFirst })
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), p.addr.Port())
	from := map[string]string{}
	for i := range 4 {
		c := p.dial(at)
		for k := range 10 {
			q := fmt.Sprintf("%d %d", i, k)
			from[q] = c.LocalAddr().String()
			c.Write([]byte(q))
		}
	}
	for range 40 {
		h, payload := stated(t, <-got)
		if h.Source.String() != from[string(payload)] || h.Destination != at {
			t.Errorf("%q from %v to %v", payload, h.Source, h.Destination)
		}
	}
}

func TestSprayAdmission(t *testing.T) {
	policy, err := admit.New(admit.Spec{Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Mask4: 32, Mask6: 128}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := sink(t, "a")
	p := start(t, specs(a), spray, func(r *udp.Route) { r.Admit = policy })
	p.dial().Write([]byte("x"))
	st := p.stats()
	eventually(t, "the denial", func() bool { return st.Outcomes[l4.RefusedACL].Load() == 1 })
	if a.count() != 0 {
		t.Error("it went on")
	}
}

// Each datagram of a train counts.
func TestSprayRateOfTrains(t *testing.T) {
	policy, err := admit.New(admit.Spec{SourceRate: 5, Mask4: 32, Mask6: 128}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := sink(t, "a")
	p := start(t, specs(a), spray, func(r *udp.Route) { r.Admit = policy })
	if err := sendTrain(p.dial(), random(60*100), 100); err != nil {
		t.Fatal(err)
	}
	st := p.stats()
	eventually(t, "all datagrams", func() bool {
		p.Flush()
		return st.DatagramsIn.Load()+st.Dropped[udp.DropRefused].Load() == 60
	})
	if in, refused := st.DatagramsIn.Load(), st.Outcomes[l4.RefusedRate].Load(); in == 0 || in > 20 || refused != 60-in {
		t.Errorf("%d went on, %d were refused", in, refused)
	}
}

// Sockets towards backends that get nothing are closed.
func TestSprayGivesUpIdleSockets(t *testing.T) {
	a := sink(t, "a")
	p := start(t, specs(a), spray, short)
	before := descriptors(t)
	c := p.dial()
	c.Write([]byte("x"))
	eventually(t, "the datagram", func() bool { return a.count() == 1 })
	if a.senders() != 1 || descriptors(t) != before+2 {
		t.Errorf("%d descriptors more", descriptors(t)-before)
	}
	eventually(t, "the socket to be closed", func() bool { return descriptors(t) == before+1 })
	c.Write([]byte("x"))
	eventually(t, "the next datagram", func() bool { return a.count() == 2 })
}

func TestSprayStops(t *testing.T) {
	a := sink(t, "a")
	p := start(t, specs(a), spray)
	c := p.dial()
	c.Write([]byte("x"))
	eventually(t, "the datagram", func() bool { return a.count() == 1 })
	p.StopAccepting()
	eventually(t, "nothing to be there any more", func() bool {
		_, err := c.Write([]byte("x"))
		return err != nil
	})
}
