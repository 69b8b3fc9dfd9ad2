package health

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var passive = PassiveSpec{Failures: 3, Base: 10 * time.Second, Max: 5 * time.Minute, MaxPercent: 50}

// pool is an ejections with what it has told so far.
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
		p.index()[key].failed()
	}
}

func (p *pool) out(now time.Time) []string {
	events, _ := p.step(now)
	for _, e := range events {
		p.told[e.key] = e.ejected
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

// Who could not be ejected because another one was is next, without a further
// failure; who returns starts from nothing.
func TestEjectionTakesTurns(t *testing.T) {
	p := newPool(passive, "a", "b", "c")
	p.fail("a", 5)
	p.fail("b", 5)
	wantOut(t, p, 0, "a")
	wantOut(t, p, 9999*time.Millisecond, "a")
	wantOut(t, p, 10*time.Second, "b")
	p.fail("a", 2)
	wantOut(t, p, 20*time.Second)
	p.fail("a", 1)
	wantOut(t, p, 20*time.Second, "a")
}

func TestEjectionGrowsAndIsForgotten(t *testing.T) {
	p := newPool(passive, "a", "b")
	now := epoch
	eject := func(want time.Duration) {
		t.Helper()
		p.fail("a", 3)
		p.out(now)
		a := p.index()["a"]
		if !a.ejected || a.until.Sub(now) != want {
			t.Fatalf("ejected: %v, for %v, want %v", a.ejected, a.until.Sub(now), want)
		}
		now = a.until
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

func TestEjectionUpdate(t *testing.T) {
	p := newPool(passive, "a", "b", "c", "d")
	p.fail("a", 3)
	p.out(epoch)
	p.fail("b", 3)
	p.out(epoch.Add(time.Second))
	later := epoch.Add(2 * time.Second)

	if events := p.update(later, passive, []string{"d", "c", "b", "a", "e", "a"}); events != nil || len(p.members) != 5 {
		t.Errorf("same members: %v, %d members", events, len(p.members))
	}
	// Two of three would be too many: who would be back first is back now.
	events := p.update(later, passive, []string{"a", "b", "c"})
	if diff := cmp.Diff([]event{{"a", false, "no longer allowed to be ejected"}}, events, cmp.AllowUnexported(event{})); diff != "" {
		t.Error(diff)
	}
	events = p.update(later, passive, []string{"a", "c"})
	if diff := cmp.Diff([]event{{"b", false, "removed"}}, events, cmp.AllowUnexported(event{})); diff != "" {
		t.Error(diff)
	}
	p.fail("c", 3)
	p.out(later)
	if events := p.update(later, passive, []string{"c"}); len(events) != 1 || events[0].ejected {
		t.Errorf("a lone backend stays ejected: %v", events)
	}
	off := passive
	off.Failures = 0
	p = newPool(passive, "a", "b")
	p.fail("a", 3)
	p.fail("b", 1)
	p.out(epoch)
	if events := p.update(later, off, []string{"a", "b"}); len(events) != 1 || events[0].ejected {
		t.Errorf("switched off: %v", events)
	}
	if n := p.failing.Load(); n != 0 {
		t.Errorf("switched off, but %d are counted as failing", n)
	}
	p.fail("a", 100)
	if events, next := p.step(later); events != nil || !next.IsZero() {
		t.Errorf("switched off, but %v", events)
	}
}

// A report that was on its way when its member left neither revives it nor
// upsets the count of failing members.
func TestEjectionOfAMemberThatLeft(t *testing.T) {
	p := newPool(passive, "a", "b")
	p.fail("a", 2)
	a := p.index()["a"]
	p.update(epoch, passive, []string{"b"})
	a.failed()
	a.end(0)
	a.failed()
	if n := p.failing.Load(); n != 0 {
		t.Errorf("%d failing", n)
	}
}

// Random failures, successes, reloads and time, against the promises: never over
// the cap, never the lone backend, events that alternate for each key, everybody
// back in the end.
func TestEjectionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := epoch
		p := newPool(PassiveSpec{})
		ejected := map[string]bool{}
		tell := func(events []event) {
			for _, e := range events {
				if ejected[e.key] == e.ejected {
					t.Fatalf("%s: ejected = %v told twice", e.key, e.ejected)
				}
				ejected[e.key] = e.ejected
				if !e.ejected {
					delete(ejected, e.key)
				}
			}
			for _, m := range p.members {
				if m.ejected != ejected[m.key] {
					t.Fatalf("%s is ejected: %v, told: %v", m.key, m.ejected, ejected[m.key])
				}
				if m.ejected && (m.until.Before(now) || m.until.Sub(now) > max(p.spec.Max, p.spec.Base) && m.lasted <= p.spec.Max) {
					t.Fatalf("%s is ejected until %v, now is %v", m.key, m.until, now)
				}
			}
			if n := len(ejected); n != p.ejections.out || n > 0 && (len(p.members) < 2 || n*100 > p.spec.MaxPercent*len(p.members)) {
				t.Fatalf("%d of %d ejected (counted: %d) with a limit of %d %%", n, len(p.members), p.ejections.out, p.spec.MaxPercent)
			}
			failing := 0
			for _, m := range p.members {
				if m.run.Load() > 0 {
					failing++
				}
			}
			if n := p.failing.Load(); n != int64(failing) {
				t.Fatalf("%d counted as failing, %d are", n, failing)
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch op := rapid.SampledFrom([]string{"fail", "fail", "succeed", "wait", "reload"}).Draw(t, "op"); op {
			case "reload":
				var keys []string
				for i := range rapid.IntRange(0, 6).Draw(t, "members") {
					keys = append(keys, fmt.Sprint("k", i))
				}
				base := rapid.IntRange(1, 20).Draw(t, "base")
				tell(p.update(now, PassiveSpec{
					Failures:   rapid.IntRange(0, 4).Draw(t, "failures"),
					Base:       time.Duration(base) * time.Second,
					Max:        time.Duration(rapid.IntRange(base, 100).Draw(t, "max")) * time.Second,
					MaxPercent: rapid.IntRange(0, 100).Draw(t, "percent"),
				}, keys))
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms")) * time.Millisecond)
				events, _ := p.step(now)
				tell(events)
			default:
				if len(p.members) == 0 {
					continue
				}
				m := p.members[rapid.IntRange(0, len(p.members)-1).Draw(t, "member")]
				if op == "succeed" {
					m.end(0)
				} else if p.spec.Failures > 0 {
					p.fail(m.key, rapid.IntRange(1, 4).Draw(t, "times"))
				}
				events, _ := p.step(now)
				tell(events)
			}
		}
		for _, m := range p.members {
			m.end(0)
		}
		for { // follow the timer, as the shell does
			events, next := p.step(now)
			tell(events)
			if next.IsZero() {
				break
			}
			now = next
		}
		if len(ejected) > 0 {
			t.Fatalf("never returned: %v", ejected)
		}
	})
}
