package admit

import (
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
)

func TestReloadKeepsCounts(t *testing.T) {
	spec := Spec{PerSource: 3}
	first := policy(t, spec, nil)
	admits(t, first, "10.0.0.1", 2, l4.OK)

	second := policy(t, spec, first)
	if n := admits(t, second, "10.0.0.1", 2, l4.RefusedLimit); n != 1 {
		t.Errorf("%d more after a reload, want 1", n)
	}
	first.Release(addr("10.0.0.1"))  // to the one that admitted
	second.Release(addr("10.0.0.1")) // of what the first has admitted
	if n := admits(t, second, "10.0.0.1", 3, l4.RefusedLimit); n != 2 {
		t.Errorf("%d after two have ended, want 2", n)
	}

	third := policy(t, Spec{PerSource: 1}, second) // three are open
	for range 2 {
		if n := admits(t, third, "10.0.0.1", 1, l4.RefusedLimit); n != 0 {
			t.Error("admitted, though more than the new limit are open")
		}
		third.Release(addr("10.0.0.1"))
	}
	third.Release(addr("10.0.0.1"))
	if n := admits(t, third, "10.0.0.1", 2, l4.RefusedLimit); n != 1 {
		t.Errorf("%d after all have ended, want 1", n)
	}
	check(t, third)
}

// A limit that is switched off and on again knows who came in between.
func TestReloadWithoutLimitAndBack(t *testing.T) {
	first := policy(t, Spec{PerSource: 2}, nil)
	admits(t, first, "10.0.0.1", 1, l4.OK)
	second := policy(t, Spec{}, first)
	admits(t, second, "10.0.0.1", 5, l4.OK)
	third := policy(t, Spec{PerSource: 7}, second)
	if n := admits(t, third, "10.0.0.1", 2, l4.RefusedLimit); n != 1 {
		t.Errorf("%d more with six open, want 1", n)
	}
	first.Release(addr("10.0.0.1"))
	for range 5 {
		second.Release(addr("10.0.0.1"))
	}
	third.Release(addr("10.0.0.1"))
	if third.here.open() {
		t.Error("something is open after all was released")
	}
}

// What a policy without any limit has admitted, and takes back, is never taken off
// what others count.
func TestReleaseOfUncounted(t *testing.T) {
	first := policy(t, Spec{SourceRate: 1000}, nil)
	at(first)
	admits(t, first, "10.0.0.1", 5, l4.OK)
	second := policy(t, Spec{SourceRate: 1000, PerSource: 2}, first)
	admits(t, second, "10.0.0.1", 2, l4.OK)
	for range 5 {
		first.Release(addr("10.0.0.1"))
	}
	if n := admits(t, second, "10.0.0.1", 1, l4.RefusedLimit); n != 0 {
		t.Error("a third was admitted")
	}
	check(t, second)
}

func TestReloadKeepsRates(t *testing.T) {
	for _, c := range []struct {
		name string
		spec func(rate float64) Spec
	}{
		{"service", func(r float64) Spec { return Spec{Rate: r} }},
		{"source", func(r float64) Spec { return Spec{SourceRate: r} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policy(t, c.spec(10), nil)
			now := at(p)
			admits(t, p, "10.0.0.1", 6, l4.OK)
			p = policy(t, c.spec(10), p)
			if n := admits(t, p, "10.0.0.1", 10, l4.RefusedRate); n != 4 {
				t.Errorf("%d after a reload, want the 4 that are left", n)
			}
			// One in ten seconds; then a hundred a second, which owes no ten seconds.
			*now += time.Second
			p = policy(t, c.spec(0.1), p)
			if n := admits(t, p, "10.0.0.1", 10, l4.RefusedRate); n != 1 {
				t.Errorf("%d at 0.1, want 1", n)
			}
			p = policy(t, c.spec(100), p)
			if n := admits(t, p, "10.0.0.1", 1000, l4.RefusedRate); n != 0 {
				t.Errorf("%d at once at 100: the allowance was used up", n)
			}
			*now += time.Second / 2
			if n := admits(t, p, "10.0.0.1", 1000, l4.RefusedRate); n != 50 {
				t.Errorf("%d half a second later, want 50", n)
			}
		})
	}
}

// Other masks begin afresh, and nothing that was counted under the old ones is
// lost, or taken off the wrong count, while it ends.
func TestReloadChangesMasks(t *testing.T) {
	first := policy(t, Spec{PerSource: 2, Mask4: 24}, nil)
	admits(t, first, "10.0.0.1", 1, l4.OK)
	admits(t, first, "10.0.0.2", 1, l4.OK)
	second := policy(t, Spec{PerSource: 2, Mask4: 32}, first)
	admits(t, second, "10.0.0.1", 2, l4.OK)
	third := policy(t, Spec{PerSource: 2, Mask4: 16}, second)
	admits(t, third, "10.0.0.1", 1, l4.OK)

	first.Release(addr("10.0.0.1"))
	if n := admits(t, second, "10.0.0.1", 1, l4.RefusedLimit); n != 0 {
		t.Error("a release to the first policy was taken off the second's count")
	}
	third.Release(addr("10.0.0.1")) // its own
	third.Release(addr("10.0.0.1")) // of the second
	third.Release(addr("10.0.0.1"))
	third.Release(addr("10.0.0.2")) // of the first
	for i, p := range []*Policy{first, second, third} {
		if p.here.open() {
			t.Errorf("policy %d: something is open after all was released", i+1)
		}
	}
	fourth := policy(t, Spec{PerSource: 2, Mask4: 8}, third)
	if n := len(fourth.elsewhere); n != 1 {
		t.Errorf("%d tables of other masks are kept, want only that of the policy before", n)
	}
}

// A policy that never came to use has done no harm.
func TestReloadThatComesToNothing(t *testing.T) {
	first := policy(t, Spec{PerSource: 2, SourceRate: 100}, nil)
	at(first)
	admits(t, first, "10.0.0.1", 1, l4.OK)
	policy(t, Spec{}, first)
	policy(t, Spec{PerSource: 9, Mask4: 8}, first)
	if _, err := New(Spec{PerSource: 2, DenyFiles: []string{"does not exist"}}, first); err == nil {
		t.Error("no error about a file that is not there")
	}
	if n := admits(t, first, "10.0.0.1", 3, l4.RefusedLimit); n != 1 {
		t.Errorf("%d more, want 1", n)
	}
	check(t, first)
}
