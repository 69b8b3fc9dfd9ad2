package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
	a.fail()
	a.end(0)
	a.fail()
	if n := p.failing.Load(); n != 0 {
		t.Errorf("%d failing", n)
	}
}
