package udp_test

import (
	"testing"

	"github.com/poise-lb/poise/l4/balance"
)

// begun is how often Hooks.Began was called for a backend.
func (p *proxy) begun(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began[name]
}

// A half-open backend gets one session, which is told of; silence is all that one-way
// traffic will ever say of it.
func TestTrialSession(t *testing.T) {
	a, b := sink(t, "a"), sink(t, "b")
	p := start(t, specs(a, b))
	p.pool.SetTrial(balance.BackendID{Name: "b", Addr: b.spec.Addr}, 1)
	for range 6 {
		c := p.dial()
		for range 2 {
			if _, err := c.Write([]byte("line")); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "all datagrams", func() bool { return a.count() == 10 && b.count() == 2 })
	if p.begun("a") != 5 || p.begun("b") != 1 {
		t.Errorf("%d and %d sessions have begun", p.begun("a"), p.begun("b"))
	}
}

// Of datagrams that are balanced one by one it gets one, and not all of them one after
// the other.
func TestTrialDatagram(t *testing.T) {
	a, b := sink(t, "a"), sink(t, "b")
	p := start(t, specs(a, b), spray)
	id := balance.BackendID{Name: "b", Addr: b.spec.Addr}
	c := p.dial()
	say := func(n int) {
		t.Helper()
		for range n {
			if _, err := c.Write([]byte("line")); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.pool.SetTrial(id, 1)
	say(30)
	eventually(t, "all datagrams", func() bool { return a.count() == 29 && b.count() == 1 })
	if p.begun("b") != 1 || p.begun("a") != 0 {
		t.Errorf("told of %d and %d", p.begun("a"), p.begun("b"))
	}
	p.pool.SetTrial(id, -1)
	say(30)
	eventually(t, "its share of the datagrams", func() bool { return a.count() == 44 && b.count() == 16 })
	if p.begun("b") != 1 {
		t.Errorf("told of %d", p.begun("b"))
	}
}
