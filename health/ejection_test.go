package health

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var passive = PassiveSpec{Failures: 3, Base: 10 * time.Second, Max: 5 * time.Minute, MaxPercent: 50}

// pool is an ejections with who is out by what it has told so far.
type pool struct {
	ejections
	told map[string]bool
}

func newPool(spec PassiveSpec, keys ...string) *pool {
	p := &pool{ejections{failing: new(atomic.Int64)}, map[string]bool{}}
	p.ejections.update(epoch, spec, keys)
	return p
}

func (p *pool) fail(key string, times int) {
	for range times {
		p.index()[key].fail()
	}
}

func (p *pool) out(now time.Time) []string {
	events, _ := p.step(now)
	for _, e := range events {
		p.told[e.Key] = e.State != Closed
	}
	var out []string
	for _, m := range p.members {
		if p.told[m.key] {
			out = append(out, m.key)
		}
	}
	return out
}

func wantOut(t *testing.T, p *pool, after time.Duration, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, p.out(epoch.Add(after)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("after %v: %s", after, diff)
	}
}

func TestEjectionNeedsFailuresInARow(t *testing.T) {
	p := newPool(passive, "a", "b", "c")
	p.fail("a", 2)
	wantOut(t, p, 0)
	p.index()["a"].end(0)
	p.fail("a", 2)
	wantOut(t, p, 0)
	p.fail("a", 1)
	wantOut(t, p, 0, "a")
}

// Case O-15: the share after ejecting counts, in whole numbers.
func TestEjectionCap(t *testing.T) {
	for _, tt := range []struct {
		members, percent, want int
	}{
		{3, 50, 1},
		{2, 50, 1},
		{4, 50, 2},
		{5, 50, 2},
		{3, 33, 0},
		{3, 34, 1},
		{3, 66, 1},
		{3, 67, 2},
		{10, 10, 1},
		{9, 10, 0},
		{3, 0, 0},
		{3, 100, 3},
		{1, 100, 0},
		{100, 1, 1},
		{7, 99, 6},
	} {
		spec := passive
		spec.MaxPercent = tt.percent
		var keys []string
		for i := range tt.members {
			keys = append(keys, fmt.Sprint(i))
		}
		p := newPool(spec, keys...)
		for _, key := range keys {
			p.fail(key, 100)
		}
		if got := len(p.out(epoch)); got != tt.want {
			t.Errorf("%d of %d ejected at %d %%, want %d", got, tt.members, tt.percent, tt.want)
		}
	}
}

// Who could not be ejected because another one was is next once that one is back,
// without a further failure. Who returns starts from nothing.
func TestEjectionTakesTurns(t *testing.T) {
	p := newPool(passive, "a", "b", "c")
	a := p.index()["a"]
	p.fail("a", 5)
	p.fail("b", 5)
	wantOut(t, p, 0, "a")
	wantOut(t, p, 9999*time.Millisecond, "a")
	wantOut(t, p, 10*time.Second, "a") // half-open
	a.judge(trialPassed)
	wantOut(t, p, 11*time.Second, "b")
	p.fail("a", 2)
	if p.index()["b"].judge(trialPassed) {
		t.Error("a trial before it is half-open")
	}
	wantOut(t, p, 20*time.Second, "b")
	wantOut(t, p, 21*time.Second, "b")
	p.index()["b"].judge(trialPassed)
	wantOut(t, p, 22*time.Second)
	p.fail("a", 1)
	wantOut(t, p, 22*time.Second, "a")
}

func TestEjectionGrowsAndIsForgotten(t *testing.T) {
	p := newPool(passive, "a", "b")
	now := epoch
	eject := func(want time.Duration) {
		t.Helper()
		p.fail("a", 3)
		p.out(now)
		a := p.index()["a"]
		if a.state != Open || a.until.Sub(now) != want {
			t.Fatalf("%v, for %v, want %v", a.state, a.until.Sub(now), want)
		}
		now = a.until
		p.out(now)
		a.judge(trialPassed)
		p.out(now)
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300, 300} {
		eject(want * time.Second)
	}
	now = now.Add(299 * time.Second) // not quite as long as the ejection
	eject(300 * time.Second)
	now = now.Add(600 * time.Second) // twice as long
	eject(80 * time.Second)
	eject(160 * time.Second)
	now = now.Add(24 * time.Hour)
	eject(10 * time.Second)
}

func TestEjectionLengths(t *testing.T) {
	for _, tt := range []struct {
		base, max time.Duration
		repeats   int
		want      time.Duration
	}{
		{10, 300, 0, 10},
		{10, 10, 5, 10},
		{10, 5, 0, 10},
		{10, 5, 3, 10},
		{10, 15, 1, 15},
		{1, 1 << 62, 1000, 1 << 62},
		{3, 1 << 62, 60, 3 << 60},
	} {
		p := ejections{spec: PassiveSpec{Base: tt.base, Max: tt.max}}
		if got := p.length(tt.repeats); got != tt.want {
			t.Errorf("base %d, max %d, repeat %d: %d, want %d", tt.base, tt.max, tt.repeats, got, tt.want)
		}
	}
}
