package health

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// flags is what an Outlier has told.
type flags struct {
	mu     sync.Mutex
	out    map[string]Circuit
	trials map[string]int // left
	most   int
	events []Change
}

func (f *flags) set(c Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out == nil {
		f.out, f.trials = map[string]Circuit{}, map[string]int{}
	}
	if f.out[c.Key] == c.State && c.Cause != CauseRenewed {
		panic(fmt.Sprintf("%s: %v told twice", c.Key, c.State))
	}
	f.trials[c.Key] = c.Trials
	if f.out[c.Key] = c.State; c.State == Closed {
		delete(f.out, c.Key)
	}
	f.most = max(f.most, len(f.out))
	f.events = append(f.events, c)
}

// admit reports whether a connection may go there, and takes a trial if it needs one.
func (f *flags) admit(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.out[key] {
	case Open:
		return false
	case HalfOpen:
		f.trials[key]--
		return f.trials[key] >= 0
	}
	return true
}

func (f *flags) ejected(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out[key] == Open
}

func (f *flags) state(key string) Circuit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out[key]
}

func (f *flags) outNow() map[string]Circuit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.out)
}

func (f *flags) take() []Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.events = nil }()
	return f.events
}

// Case O-15, with connects in place of requests: A and B always fail, C works.
func TestOutlierKeepsToItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		spec := PassiveSpec{Failures: 3, Base: 5 * time.Second, Max: 5 * time.Minute, MaxPercent: 50, HalfOpen: 1}
		o := NewOutlier(spec, f.set)
		defer o.Close()
		keys := []string{"a", "b", "c"}
		o.Update(spec, keys)
		start := time.Now()
		served := map[string]int{}
		for i := range 2000 { // 100 a second for 20 s, round robin over who is not out
			key := keys[i%3]
			if f.admit(key) {
				served[key]++
				if o.Connected(key, key == "c"); key == "c" {
					o.Answered(key, true)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if f.most != 1 {
			t.Errorf("%d of 3 out at once", f.most)
		}
		if served["c"] < 600 {
			t.Errorf("c served %d", served["c"])
		}
		// a first. After 5 s it has one trial, which fails, and after 10 s another one.
		if diff := cmp.Diff([]Change{
			{"a", Open, 0, CauseFailures, "3 connections in a row failed, ejected for 5s"},
			{"a", HalfOpen, 1, CauseTimeOver, "ejection time is over, on trial"},
			{"a", Open, 0, CauseTrialFailed, "its trial failed, ejected again for 10s"},
			{"a", HalfOpen, 1, CauseTimeOver, "ejection time is over, on trial"},
			{"a", Open, 0, CauseTrialFailed, "its trial failed, ejected again for 20s"},
		}, f.take()); diff != "" {
			t.Error(diff)
		}
		if served["a"] != 5 {
			t.Errorf("a served %d, want 3 and 2 trials", served["a"])
		}
		if st, _ := o.Status("a"); st.Total != 3 || st.State != Open {
			t.Errorf("a: %+v", st)
		}
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// What ends a run of failures: an answer any run, a connect only one of failed
// connects, because those who accept and reset would never be found out.
func TestOutlierRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			report  func(o *Outlier)
			ejected bool
		}{
			"connects fail":               {func(o *Outlier) { o.Connected("a", false) }, true},
			"answers fail":                {func(o *Outlier) { o.Connected("a", true); o.Answered("a", false) }, true},
			"connects fail now and then":  {func(o *Outlier) { o.Connected("a", false); o.Connected("a", true) }, false},
			"answers fail now and then":   {func(o *Outlier) { o.Answered("a", false); o.Connected("a", true); o.Answered("a", true) }, false},
			"an answer after a connect":   {func(o *Outlier) { o.Connected("a", false); o.Answered("a", true) }, false},
			"connects and answers fail":   {func(o *Outlier) { o.Connected("a", false); o.Connected("a", true); o.Answered("a", false) }, true},
			"somebody unknown":            {func(o *Outlier) { o.Connected("x", false); o.Answered("x", false); o.Connected("x", true) }, false},
			"failures of somebody else's": {func(o *Outlier) { o.Connected("b", false); o.Connected("a", true); o.Connected("b", true) }, false},
		} {
			var f flags
			o := NewOutlier(passive, f.set)
			o.Update(passive, []string{"a", "b"})
			for range 10 {
				tt.report(o)
			}
			synctest.Wait()
			if f.ejected("a") != tt.ejected {
				t.Errorf("%s: ejected is %v", name, !tt.ejected)
			}
			o.Close()
		}
	})
}

func TestOutlierLoneBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		spec := passive
		spec.MaxPercent = 100
		o := NewOutlier(spec, f.set)
		defer o.Close()
		o.Update(spec, []string{"a"})
		for range 1000 {
			o.Connected("a", false)
		}
		synctest.Wait()
		if events := f.take(); events != nil {
			t.Error(events)
		}
		// With company the same failures do count.
		o.Update(spec, []string{"a", "b"})
		synctest.Wait()
		if !f.ejected("a") {
			t.Error("not ejected")
		}
	})
}

func TestOutlierReturnsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		o := NewOutlier(passive, f.set)
		defer o.Close()
		o.Update(passive, []string{"a", "b"})
		for _, length := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			o.Connected("a", false)
			o.Connected("a", false)
			o.Answered("a", true)
			o.Connected("a", false)
			o.Connected("a", false)
			synctest.Wait()
			if f.ejected("a") {
				t.Fatal("ejected after two failures in a row")
			}
			o.Connected("a", false)
			synctest.Wait()
			st, ok := o.Status("a")
			if !f.ejected("a") || !ok || st.State != Open || st.Why == "" || time.Until(st.Until) != length {
				t.Fatalf("%+v", st)
			}
			time.Sleep(length - time.Nanosecond)
			synctest.Wait()
			if !f.ejected("a") {
				t.Fatal("back too early")
			}
			o.Connected("a", false) // one that was on its way does not count after the return
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if st, _ := o.Status("a"); f.state("a") != HalfOpen || st.State != HalfOpen || !st.Until.IsZero() || st.Why == "" {
				t.Fatalf("no trial: %+v", st)
			}
			o.Answered("a", true)
			synctest.Wait()
			if st, _ := o.Status("a"); f.state("a") != Closed || st.State != Closed || !st.Until.IsZero() || st.Why != "" {
				t.Fatalf("not back: %+v", st)
			}
		}
		if st, _ := o.Status("a"); st.Total != 3 {
			t.Errorf("%d ejections, want 3", st.Total)
		}
	})
}
