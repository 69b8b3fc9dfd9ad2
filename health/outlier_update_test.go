package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOutlierUpdateAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		o := NewOutlier(passive, f.set)
		keys := []string{"a", "b", "c", "d"}
		o.Update(passive, keys)
		eject := func(key string) {
			t.Helper()
			for range passive.Failures {
				o.Connected(key, false)
			}
			synctest.Wait()
			if !f.ejected(key) {
				t.Fatalf("%s is not ejected", key)
			}
		}
		eject("a")
		until, _ := o.Status("a")
		longer := passive
		longer.Base = time.Minute
		o.Update(longer, keys)
		if st, _ := o.Status("a"); !cmp.Equal(until, st) {
			t.Errorf("an update changed a running ejection from %+v to %+v", until, st)
		}
		eject("b")
		if st, _ := o.Status("b"); time.Until(st.Until) != time.Minute {
			t.Errorf("ejected for %v", time.Until(st.Until))
		}
		f.take()
		o.Update(longer, []string{"b", "c", "d", "e"})
		synctest.Wait()
		if diff := cmp.Diff([]Change{{"a", Closed, 0, CauseForgotten, "removed"}}, f.take()); diff != "" {
			t.Error(diff)
		}
		if _, ok := o.Status("a"); ok {
			t.Error("a removed member has a status")
		}
		o.Connected("a", false)
		o.Connected("a", true)
		// One that comes back is new.
		o.Update(longer, keys)
		synctest.Wait()
		if st, ok := o.Status("a"); !ok || st.State != Closed || st.Total != 0 {
			t.Errorf("%+v", st)
		}
		o.Close()
		if f.ejected("b") {
			t.Error("ejected by a detector that is closed")
		}
		o.Connected("b", false)
		o.Connected("b", true)
	})
}
