package health

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
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
		p.index()[key].failed()
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

// vector is one step of a circuit: what happens, and what comes of it.
type vector struct {
	after time.Duration // since the step before
	do    func(a *member)
	want  Change // Why is not compared; the zero value is no change
}

// The whole of a circuit, step by step.
func TestCircuit(t *testing.T) {
	fail := func(a *member) { a.failed(); a.failed(); a.failed() }
	result := func(r int32) func(*member) { return func(a *member) { a.judge(r) } }
	nothing := func(*member) {}
	opened := func(c Cause) Change { return Change{Key: "a", State: Open, Cause: c} }
	onTrial := func(c Cause) Change { return Change{Key: "a", State: HalfOpen, Trials: 2, Cause: c} }
	closed := Change{Key: "a", State: Closed, Cause: CauseTrialPassed}
	spec := passive
	spec.HalfOpen = 2
	const base = 10 * time.Second
	for name, vectors := range map[string][]vector{
		"passes": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{time.Second, result(trialPassed), closed},
			{time.Second, nothing, Change{}},
		},
		"connects, then answers": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{0, result(trialReached), Change{}},
			{trialPatience / 2, result(trialPassed), closed},
		},
		"fails, longer each time": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{time.Second, result(trialFailed), opened(CauseTrialFailed)},
			{2*base - 1, nothing, Change{}},
			{1, nothing, onTrial(CauseTimeOver)},
			{0, result(trialReached), Change{}},
			{0, result(trialFailed), opened(CauseTrialFailed)},
			{4 * base, nothing, onTrial(CauseTimeOver)},
			{0, result(trialPassed), closed},
			{0, fail, opened(CauseFailures)},
			{8 * base, nothing, onTrial(CauseTimeOver)},
		},
		"nobody comes, or the trial is lost": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{trialPatience, nothing, onTrial(CauseRenewed)},
			{trialPatience, nothing, onTrial(CauseRenewed)},
			{0, result(trialPassed), closed},
		},
		"established and silent": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{trialPatience - 1, result(trialReached), Change{}},
			{trialPatience - 1, nothing, Change{}},
			{1, nothing, closed},
		},
		"the first verdict counts": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{0, func(a *member) { a.judge(trialPassed); a.judge(trialFailed) }, closed},
		},
		"failures on trial are no run": {
			{0, fail, opened(CauseFailures)},
			{base, func(a *member) { a.failed() }, onTrial(CauseTimeOver)},
			{0, result(trialPassed), closed},
			{0, func(a *member) { a.failed(); a.failed() }, Change{}},
			{0, func(a *member) { a.failed() }, opened(CauseFailures)},
		},
	} {
		p, now := newPool(spec, "a", "b"), epoch
		for i, v := range vectors {
			now = now.Add(v.after)
			v.do(p.index()["a"])
			changes, next := p.step(now)
			var want []Change
			if v.want != (Change{}) {
				want = append(want, v.want)
			}
			if d := cmp.Diff(want, changes, cmpopts.IgnoreFields(Change{}, "Why"), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s, step %d: %s", name, i, d)
			}
			if out := p.ejections.out > 0; out == next.IsZero() || out && !next.After(now) {
				t.Errorf("%s, step %d: next at %v, now is %v", name, i, next, now)
			}
		}
	}
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
	if diff := cmp.Diff([]Change{{"a", Closed, 0, CauseNotAllowed, "no longer allowed to be ejected"}}, events); diff != "" {
		t.Error(diff)
	}
	events = p.update(later, passive, []string{"a", "c"})
	if diff := cmp.Diff([]Change{{"b", Closed, 0, CauseForgotten, "removed"}}, events); diff != "" {
		t.Error(diff)
	}
	p.fail("c", 3)
	p.out(later)
	if events := p.update(later, passive, []string{"c"}); len(events) != 1 || events[0].State != Closed {
		t.Errorf("a lone backend stays ejected: %v", events)
	}
	// Who is on trial returns before who is open, and its trial means nothing then.
	p = newPool(passive, "a", "b", "c", "d")
	p.fail("b", 3)
	p.out(epoch)
	p.out(epoch.Add(10 * time.Second))
	b := p.index()["b"]
	p.fail("a", 3)
	p.out(epoch.Add(10 * time.Second))
	events = p.update(later, passive, []string{"a", "b", "c"})
	if len(events) != 1 || events[0].Key != "b" || b.state != Closed || b.judge(trialFailed) || b.onTrial() {
		t.Errorf("%v, %+v", events, b)
	}
	off := passive
	off.Failures = 0
	p = newPool(passive, "a", "b")
	p.fail("a", 3)
	p.fail("b", 1)
	p.out(epoch)
	if events := p.update(later, off, []string{"a", "b"}); len(events) != 1 || events[0].State != Closed {
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

// Random failures, trials, reloads and time, against the promises: never over the
// cap, never the lone backend, only steps that a circuit has, trials exactly when
// half-open, everybody back in the end.
func TestEjectionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := epoch
		p := newPool(PassiveSpec{})
		state := map[string]Circuit{}
		tell := func(events []Change) {
			for _, e := range events {
				from := state[e.Key]
				legal := map[Circuit][]Circuit{Closed: {Open}, Open: {HalfOpen, Closed}, HalfOpen: {Open, Closed}}[from]
				switch renewed := from == HalfOpen && e.State == HalfOpen && e.Cause == CauseRenewed; {
				case !slices.Contains(legal, e.State) && !renewed:
					t.Fatalf("%s: from %v to %v", e.Key, from, e.State)
				case from == Open && e.State == Closed && e.Cause != CauseForgotten && e.Cause != CauseNotAllowed:
					t.Fatalf("%s: closed without a trial: %v", e.Key, e)
				case (e.State == HalfOpen) != (e.Trials > 0) || e.State == HalfOpen && e.Trials != max(p.spec.HalfOpen, 1):
					t.Fatalf("%s: %d trials when %v", e.Key, e.Trials, e.State)
				case e.Why == "" || e.Cause == "":
					t.Fatalf("%v", e)
				}
				if state[e.Key] = e.State; e.State == Closed {
					delete(state, e.Key)
				}
			}
			failing := 0
			for _, m := range p.members {
				if m.state != state[m.key] {
					t.Fatalf("%s is %v, told: %v", m.key, m.state, state[m.key])
				}
				if m.onTrial() != (m.state == HalfOpen) {
					t.Fatalf("%s is %v, on trial: %v", m.key, m.state, m.onTrial())
				}
				if m.state == Open && (m.until.Before(now) || m.until.Sub(now) > max(p.spec.Max, p.spec.Base) && m.lasted <= p.spec.Max) {
					t.Fatalf("%s is ejected until %v, now is %v", m.key, m.until, now)
				}
				if m.run.Load() > 0 {
					failing++
				}
				if m.onTrial() {
					failing++
				}
			}
			if n := len(state); n != p.ejections.out || n > 0 && (len(p.members) < 2 || n*100 > p.spec.MaxPercent*len(p.members)) {
				t.Fatalf("%d of %d out (counted: %d) with a limit of %d %%", n, len(p.members), p.ejections.out, p.spec.MaxPercent)
			}
			if n := p.failing.Load(); n != int64(failing) {
				t.Fatalf("%d counted as failing, %d are", n, failing)
			}
		}
		step := func() (next time.Time) {
			events, next := p.step(now)
			tell(events)
			return next
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch op := rapid.SampledFrom([]string{"fail", "fail", "succeed", "trial", "trial", "wait", "reload"}).Draw(t, "op"); op {
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
					HalfOpen:   rapid.IntRange(0, 3).Draw(t, "half_open"),
				}, keys))
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms")) * time.Millisecond)
				step()
			default:
				if len(p.members) == 0 {
					continue
				}
				m := p.members[rapid.IntRange(0, len(p.members)-1).Draw(t, "member")]
				switch {
				case op == "trial":
					m.judge(rapid.SampledFrom([]int32{trialReached, trialPassed, trialFailed}).Draw(t, "result"))
				case op == "succeed":
					m.end(0)
				case p.spec.Failures > 0 && !m.onTrial():
					p.fail(m.key, rapid.IntRange(1, 4).Draw(t, "times"))
				}
				step()
			}
		}
		for _, m := range p.members {
			m.end(0)
		}
		for i := 0; ; i++ { // follow the timer, as the shell does, and let trials pass
			for _, m := range p.members {
				m.judge(trialPassed)
			}
			next := step()
			if next.IsZero() {
				break
			}
			if i > 100 {
				t.Fatalf("never returned: %v", state)
			}
			now = next
		}
	})
}
