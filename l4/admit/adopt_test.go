package admit

import (
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4"
)

// What is adopted counts as what is admitted does, beyond the limit too, and takes nothing
// of the rate.
func TestAdopt(t *testing.T) {
	a, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	p, err := New(Spec{PerSource: 2, SourceRate: 0.01}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p.Adopt(a)
	}
	if got := p.Admit(a); got != l4.RefusedLimit {
		t.Errorf("with three adopted: %v", got)
	}
	if got := p.Admit(other); got != l4.OK {
		t.Errorf("another source: %v", got)
	}
	p.Release(a)
	p.Release(a)
	if got := p.Admit(a); got != l4.OK {
		t.Errorf("with one left, and all of the rate: %v", got)
	}
	p.Release(a)
	p.Release(a)
	p.Release(other)
	if p.here.open() {
		t.Error("something is left open")
	}
	p.Adopt(a) // the entry that is remembered for its rate
	if !p.here.open() {
		t.Error("adopted by a source that is known, and not open")
	}
	p.Release(a)

	(*Policy)(nil).Adopt(a)
	free, err := New(Spec{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	free.Adopt(a) // counts nothing, and has no table
}
