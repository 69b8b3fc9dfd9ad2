package tcp_test

import (
	"net"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// Open connections are listed from the oldest on, up to the limit, and by what
// they are asked for.
func TestConns(t *testing.T) {
	a, b := echo(t), echo(t)
	p := start(t, []balance.BackendSpec{a, b})
	if list := p.Conns(10, "", ""); len(list) != 0 {
		t.Errorf("nobody is here: %+v", list)
	}
	var held []*net.TCPConn
	for range 6 {
		held = append(held, p.hold())
		time.Sleep(5 * time.Millisecond) // a loop's clock ticks in rounds
	}
	list := p.Conns(10, "", "")
	if len(list) != 6 {
		t.Fatalf("%d connections, want 6", len(list))
	}
	for i, c := range list {
		if c.Flow.Client.String() != held[i].LocalAddr().String() {
			t.Errorf("number %d is %s, want %s", i, c.Flow.Client, held[i].LocalAddr())
		}
		if c.Service != "service" || c.Pool != "pool" || c.State != "open" || c.BytesIn != 16 || c.BytesOut != 16 || c.Age <= 0 || c.Idle < 0 || c.Idle > c.Age {
			t.Errorf("%+v", c)
		}
	}
	if some := p.Conns(2, "", ""); len(some) != 2 || some[0].Flow != list[0].Flow || some[1].Flow != list[1].Flow {
		t.Errorf("the oldest two are %+v", some)
	}
	for _, c := range p.Conns(10, "pool", a.Name) {
		if c.Backend != a.Name {
			t.Errorf("asked for %s: %+v", a.Name, c)
		}
	}
	for _, q := range []struct {
		pool, backend string
		want          int
	}{{"pool", "", 6}, {"pool", a.Name, 3}, {"", b.Name, 3}, {"other", "", 0}, {"", "other", 0}} {
		if n := len(p.Conns(10, q.pool, q.backend)); n != q.want {
			t.Errorf("%+v: %d connections", q, n)
		}
	}
	// Those in the middle and at both ends go.
	for _, i := range []int{0, 3, 5} {
		held[i].Close()
	}
	p.ended(3)
	list = p.Conns(10, "", "")
	if len(list) != 3 || list[0].Flow.Client.String() != held[1].LocalAddr().String() || list[2].Flow.Client.String() != held[4].LocalAddr().String() {
		t.Errorf("%+v", list)
	}
	for _, c := range held {
		c.Close()
	}
}

// A connection is seen before it has a backend that answers.
func TestConnsConnecting(t *testing.T) {
	m := mute(t)
	p := start(t, one(m), func(r *tcp.Route) { r.Spec.Connect = patience })
	c := p.dial()
	eventually(t, "a connect", func() bool {
		list := p.Conns(10, "", "")
		return len(list) == 1 && list[0].State == "connecting" && list[0].Backend == m.Name && list[0].Idle == 0
	})
	c.Close()
	p.Kill(l4.Killed)
}
