package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Case O-11: what was known before a reload is known after it, and counting goes
// on.
func TestMonitorCarriesStateThroughSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a := m.backends["a"]
		spec := Spec{Type: "tcp", Interval: 500 * time.Millisecond, Timeout: time.Second, Rise: 3, Fall: 3}
		probes := func(n int) { // lets so many go by
			t.Helper()
			a.take()
			for i := 0; i < n; {
				time.Sleep(10 * time.Millisecond)
				i += len(a.take())
			}
			synctest.Wait()
		}
		reload := func(change func(*Spec)) {
			change(&spec)
			m.Set([]Target{on("a", spec)})
			synctest.Wait()
		}
		reload(func(*Spec) {})
		probes(3)

		a.set(errRefused, 0)
		probes(2)
		reload(func(s *Spec) { s.Interval = 400 * time.Millisecond })
		probes(1) // the third in a row
		if diff := cmp.Diff([]change{{"pool|a", false}}, m.take()); diff != "" {
			t.Fatal(diff)
		}
		reload(func(s *Spec) { s.Timeout = 2 * time.Second })
		if st, _ := m.Status("pool|a"); st.Up || st.Reason != L4CON || st.Probes == 0 {
			t.Errorf("after a reload %+v", st)
		}
		probes(3)

		a.set(nil, 0)
		probes(1)
		reload(func(s *Spec) { s.Interval = 500 * time.Millisecond })
		probes(1)
		if ch := m.take(); ch != nil {
			t.Fatalf("two successes of three: %v", ch)
		}
		reload(func(s *Spec) { s.Fall = 5 })
		probes(1)
		if diff := cmp.Diff([]change{{"pool|a", true}}, m.take()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A check that asks something else keeps the verdict, but not the streak.
func TestMonitorChangedCheckKeepsTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a, spec := m.backends["a"], testSpec
		a.set(errRefused, 0)
		m.Set([]Target{on("a", spec)})
		time.Sleep(time.Minute)
		m.take()
		a.set(nil, 0)
		for len(a.take()) == 0 { // one success
			time.Sleep(10 * time.Millisecond)
		}
		start := time.Now()
		spec.Type, spec.HTTP.Path = "http", "/health"
		m.Set([]Target{on("a", spec)})
		synctest.Wait()
		if st, _ := m.Status("pool|a"); st.Up || !st.Verdict || st.Reason != L4CON {
			t.Errorf("right after: %+v", st)
		}
		var starts []time.Time
		for len(starts) < 2 {
			if ch := m.take(); ch != nil {
				t.Fatalf("%v after %d probes of the new check", ch, len(starts))
			}
			time.Sleep(10 * time.Millisecond)
			starts = append(starts, a.take()...)
		}
		synctest.Wait()
		if diff := cmp.Diff([]change{{"pool|a", true}}, m.take()); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the new check took %v to a verdict", took)
		}
	})
}

// An answer to a question that is no longer asked does not count, and is not
// waited for.
func TestMonitorDropsTheAnswerOfAReplacedCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a, spec := m.backends["a"], testSpec
		spec.Fall, spec.Timeout = 1, time.Hour
		a.set(errRefused, 30*time.Minute)
		m.Set([]Target{on("a", spec)})
		time.Sleep(time.Minute)
		a.set(nil, 0)
		a.take()
		for _, port := range []int{1, 0} { // there and back again
			spec.Port = port
			m.Set([]Target{on("a", spec)})
		}
		time.Sleep(time.Minute)
		if n := len(a.take()); n < 25 {
			t.Errorf("%d probes in a minute", n)
		}
		if st, _ := m.Status("pool|a"); !st.Up || failed(st) > 0 {
			t.Errorf("%+v", st)
		}
		if ch := m.take(); ch != nil {
			t.Errorf("changes %v", ch)
		}
	})
}

func TestMonitorSetDoesNotWaitForAHangingProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a", "b")
		a, b := m.backends["a"], m.backends["b"]
		spec := testSpec
		spec.Timeout = time.Hour
		a.set(nil, time.Hour)
		b.set(nil, time.Hour)
		m.Set([]Target{on("a", spec), on("b", spec)})
		time.Sleep(time.Minute)
		start := time.Now()
		m.Set([]Target{on("b", spec)})
		synctest.Wait()
		if n, _ := a.flying(); n != 0 {
			t.Error("the removed target's probe is still in flight")
		}
		if n, _ := b.flying(); n != 1 {
			t.Error("the other one's is not")
		}
		if _, ok := m.Status("pool|a"); ok {
			t.Error("the removed target still has a status")
		}
		m.Close()
		if n, _ := b.flying(); n != 0 {
			t.Error("a probe is in flight after Close")
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v", took)
		}
		m.Set([]Target{on("a", spec)})
		if _, ok := m.Status("pool|a"); ok {
			t.Error("Set works after Close")
		}
		m.Close()
	})
}

func TestMonitorTypeNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a", "b")
		defer m.Close()
		none := Spec{Type: "none", InitialDown: true}
		m.backends["b"].set(errRefused, 0)
		m.Set([]Target{on("a", none), on("b", testSpec)})
		if st, ok := m.Status("pool|a"); !ok || !st.Up || !st.Verdict {
			t.Errorf("none: %+v", st)
		}
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]change{{"pool|b", false}}, m.take()); diff != "" {
			t.Error(diff)
		}
		// The one that was down is trusted from now on, the other one checked.
		m.backends["b"].take()
		m.Set([]Target{on("a", testSpec), on("b", none)})
		synctest.Wait()
		if diff := cmp.Diff([]change{{"pool|b", true}}, m.take()); diff != "" {
			t.Error(diff)
		}
		if b, _ := m.targets.Get("pool|b"); b.alive {
			t.Error("a target without a check keeps its goroutine")
		}
		if st, _ := m.Status("pool|b"); !st.Up || st.Reason != "" || st.FailuresBy[L4CON] == 0 {
			t.Errorf("none after down: %+v", st)
		}
		time.Sleep(time.Minute)
		if len(m.backends["a"].take()) == 0 || len(m.backends["b"].take()) > 0 {
			t.Error("the wrong one is probed")
		}
		// And back, several times, faster than its goroutine may notice.
		for range 10 {
			m.Set([]Target{on("b", testSpec)})
			m.Set([]Target{on("b", none)})
		}
		m.Set([]Target{on("b", testSpec)})
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]change{{"pool|b", false}}, m.take()); diff != "" {
			t.Error(diff)
		}
	})
}
