package health

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// flags is what an Outlier has told.
type flags struct {
	mu     sync.Mutex
	out    map[string]bool
	most   int
	events []event
}

func (f *flags) set(key string, ejected bool, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out == nil {
		f.out = map[string]bool{}
	}
	if f.out[key] == ejected {
		panic(fmt.Sprintf("%s: ejected = %v told twice", key, ejected))
	}
	if f.out[key] = ejected; !ejected {
		delete(f.out, key)
	}
	f.most = max(f.most, len(f.out))
	f.events = append(f.events, event{key, ejected, why})
}

func (f *flags) ejected(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out[key]
}

func (f *flags) take() []event {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.events = nil }()
	return f.events
}

var equateEvents = cmp.AllowUnexported(event{})

// Case O-15, with connects in place of requests: A and B always fail, C works.
func TestOutlierKeepsToItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		spec := PassiveSpec{Failures: 3, Base: 5 * time.Second, Max: 5 * time.Minute, MaxPercent: 50}
		o := NewOutlier(spec, f.set)
		defer o.Close()
		keys := []string{"a", "b", "c"}
		o.Update(spec, keys)
		start := time.Now()
		served := map[string]int{}
		for i := range 2000 { // 100 a second for 20 s, round robin over who is not ejected
			key := keys[i%3]
			if !f.ejected(key) {
				served[key]++
				o.Report(key, key == "c")
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if f.most != 1 {
			t.Errorf("%d of 3 ejected at once", f.most)
		}
		if served["c"] < 600 {
			t.Errorf("c served %d", served["c"])
		}
		// a first; after 5 s it returns and b, failing all along, takes its place.
		events := f.take()
		if len(events) < 4 {
			t.Fatalf("events %v", events)
		}
		if diff := cmp.Diff([]event{
			{"a", true, "3 connects in a row failed, ejected for 5s"},
			{"a", false, "ejection time is over"},
		}, events[:2], equateEvents); diff != "" {
			t.Error(diff)
		}
		if e := events[2]; e.key != "b" || !e.ejected {
			t.Errorf("third event %v", e)
		}
		if st, _ := o.Status("a"); st.Total < 1 {
			t.Errorf("a: %+v", st)
		}
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("took %v", took)
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
			o.Report("a", false)
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
			o.Report("a", false)
			o.Report("a", false)
			o.Report("a", true)
			o.Report("a", false)
			o.Report("a", false)
			synctest.Wait()
			if f.ejected("a") {
				t.Fatal("ejected after two failures in a row")
			}
			o.Report("a", false)
			synctest.Wait()
			st, ok := o.Status("a")
			if !f.ejected("a") || !ok || !st.Ejected || st.Why == "" || time.Until(st.Until) != length {
				t.Fatalf("%+v", st)
			}
			time.Sleep(length - time.Nanosecond)
			synctest.Wait()
			if !f.ejected("a") {
				t.Fatal("back too early")
			}
			o.Report("a", false) // one that was on its way does not count after the return
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if st, _ := o.Status("a"); f.ejected("a") || st.Ejected || !st.Until.IsZero() || st.Why != "" {
				t.Fatalf("not back: %+v", st)
			}
		}
		if st, _ := o.Status("a"); st.Total != 3 {
			t.Errorf("%d ejections, want 3", st.Total)
		}
	})
}

func TestOutlierUpdateAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		o := NewOutlier(passive, f.set)
		keys := []string{"a", "b", "c", "d"}
		o.Update(passive, keys)
		eject := func(key string) {
			t.Helper()
			for range passive.Failures {
				o.Report(key, false)
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
		if diff := cmp.Diff([]event{{"a", false, "removed"}}, f.take(), equateEvents); diff != "" {
			t.Error(diff)
		}
		if _, ok := o.Status("a"); ok {
			t.Error("a removed member has a status")
		}
		o.Report("a", false)
		o.Report("a", true)
		// One that comes back is new.
		o.Update(longer, keys)
		synctest.Wait()
		if st, ok := o.Status("a"); !ok || st.Ejected || st.Total != 0 {
			t.Errorf("%+v", st)
		}
		o.Close()
		if f.ejected("b") {
			t.Error("ejected by a detector that is closed")
		}
		o.Report("b", false)
		o.Report("b", true)
	})
}

// Loops report while reloads come and go; the race detector watches. In the end
// nobody fails and the fast path is back.
func TestOutlierConcurrency(t *testing.T) {
	var f flags
	spec := PassiveSpec{Failures: 2, Base: time.Microsecond, Max: time.Millisecond, MaxPercent: 60}
	o := NewOutlier(spec, f.set)
	keys := []string{"a", "b", "c", "d", "e"}
	o.Update(spec, keys)
	var running sync.WaitGroup
	for loop := range 4 {
		running.Go(func() {
			for i := range 3000 {
				key := keys[(i+loop)%len(keys)]
				o.Report(key, (i/len(keys)+loop)%4 == 0)
				if i%100 == 0 {
					o.Status(key)
				}
			}
		})
	}
	running.Go(func() {
		for i := range 300 {
			o.Update(spec, keys[i%3:])
		}
		o.Update(spec, keys)
	})
	running.Wait()
	for _, key := range keys {
		o.Report(key, true)
	}
	if n := o.failing.Load(); n != 0 {
		t.Errorf("%d members are counted as failing", n)
	}
	o.Close()
	if f.most > 3 {
		t.Errorf("%d of at most 5 ejected at once", f.most)
	}
	if len(f.out) > 0 {
		t.Errorf("ejected after Close: %v", f.out)
	}
}

func TestOutlierReportDoesNotAllocate(t *testing.T) {
	var f flags
	o := NewOutlier(passive, f.set)
	defer o.Close()
	o.Update(passive, []string{"a"}) // a lone one, so that nothing is told
	for name, report := range map[string]func(){
		"success": func() { o.Report("a", true) },
		"failure": func() { o.Report("a", false) },
		"both":    func() { o.Report("a", false); o.Report("a", true) },
	} {
		if n := testing.AllocsPerRun(1000, report); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkOutlierReport(b *testing.B) {
	var f flags
	o := NewOutlier(passive, f.set)
	defer o.Close()
	o.Update(passive, []string{"a", "b", "c"})
	b.Run("success", func(b *testing.B) {
		for b.Loop() {
			o.Report("a", true)
		}
	})
	o.Report("b", false)
	b.Run("success while another fails", func(b *testing.B) {
		for b.Loop() {
			o.Report("a", true)
		}
	})
}
