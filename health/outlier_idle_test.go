package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// One primary and one standby are no two of which one may be ejected: the standby takes
// no traffic. After a change of roles the same goes for the other one.
func TestOutlierReckonsWithoutIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		spec := PassiveSpec{Failures: 3, Base: 10 * time.Second, Max: time.Minute, MaxPercent: 50, HalfOpen: 1}
		o := NewOutlier(spec, f.set)
		defer o.Close()
		o.Update(spec, []string{"a", "b"})
		fail := func(key string) {
			for range 10 {
				o.Answered(key, false)
			}
			synctest.Wait()
		}
		o.Idle("b", true)
		fail("a")
		if events := f.take(); events != nil {
			t.Errorf("the only one that serves: %v", events)
		}
		// An update keeps what is known of a member that stays.
		o.Update(spec, []string{"b", "a", "c"})
		o.Idle("c", true)
		fail("a")
		fail("b") // its open connections end: it is out of rotation anyway
		if events := f.take(); events != nil {
			t.Errorf("one of three serves: %v", events)
		}
		// With company it can be spared, and what b met with while it was idle is forgotten.
		o.Idle("b", false)
		fail("a")
		if diff := cmp.Diff(map[string]Circuit{"a": Open}, f.outNow()); diff != "" {
			t.Error(diff)
		}
		f.take()
		// Until the company is gone.
		o.Idle("b", true)
		synctest.Wait()
		if diff := cmp.Diff([]Change{{"a", Closed, 0, CauseNotAllowed, "no longer allowed to be ejected"}}, f.take()); diff != "" {
			t.Error(diff)
		}
		o.Idle("nobody", true)
	})
}

// A member that is down as well as ejected no longer takes the place of one that fails,
// and is reckoned with again when its check passes.
func TestOutlierIdleWhileEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		spec := PassiveSpec{Failures: 1, Base: time.Hour, Max: time.Hour, MaxPercent: 50, HalfOpen: 1}
		o := NewOutlier(spec, f.set)
		defer o.Close()
		o.Update(spec, []string{"a", "b", "c"})
		o.Connected("a", false)
		synctest.Wait()
		o.Idle("a", true)
		o.Connected("b", false)
		synctest.Wait()
		if diff := cmp.Diff(map[string]Circuit{"a": Open, "b": Open}, f.outNow()); diff != "" {
			t.Error(diff)
		}
		o.Idle("a", false) // two of three are too many: who would be back first is back
		synctest.Wait()
		if diff := cmp.Diff(map[string]Circuit{"b": Open}, f.outNow()); diff != "" {
			t.Error(diff)
		}
		o.Idle("b", true)
		off := spec
		off.Failures = 0
		o.Update(off, []string{"a", "b", "c"}) // ends the ejections of all
		synctest.Wait()
		if out := f.outNow(); len(out) != 0 {
			t.Errorf("still out: %v", out)
		}
	})
}
