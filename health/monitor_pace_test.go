package health

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMonitorIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const normal, fast, down = 2 * time.Second, 500 * time.Millisecond, 5 * time.Second
		m := newTestMonitor("a")
		defer m.Close()
		a, start := m.backends["a"], time.Now()
		m.Set([]Target{on("a", testSpec)})

		time.Sleep(9 * time.Second)
		starts := a.take()
		if first := starts[0].Sub(start); first > fast {
			t.Errorf("first probe after %v", first)
		}
		// Fast until the first verdict, here the second success.
		wantGaps(t, starts[:5], fast, normal, normal, normal)

		a.set(errRefused, 0)
		time.Sleep(20 * time.Second)
		starts = a.take()
		// Two more on the way down, the third failure takes it down.
		wantGaps(t, starts[:5], fast, fast, down, down)

		a.set(nil, 0)
		time.Sleep(20 * time.Second)
		starts = a.take()
		wantGaps(t, starts[:4], fast, normal, normal)

		if diff := cmp.Diff([]change{{"pool|a", false}, {"pool|a", true}}, m.take()); diff != "" {
			t.Error(diff)
		}
	})
}

// Without them, the fast and the down interval are the normal one.
func TestMonitorOneInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		m.backends["a"].set(errRefused, 0)
		m.Set([]Target{on("a", Spec{Type: "tcp", Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 2})})
		time.Sleep(10 * time.Second)
		starts := m.backends["a"].take()
		wantGaps(t, starts[:5], time.Second, time.Second, time.Second, time.Second)
	})
}

// The first probes of many targets spread evenly over the start window, and the
// rate is what the intervals say, however many processors there are.
func TestMonitorSpreadsProbes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 4} {
		runtime.GOMAXPROCS(procs)
		synctest.Test(t, func(t *testing.T) {
			var addresses []string
			for i := range 20 {
				addresses = append(addresses, fmt.Sprint("b", i))
			}
			m := newTestMonitor(addresses...)
			defer m.Close()
			spec := testSpec
			spec.FastInterval, spec.Interval = 0, 4*time.Second
			var targets []Target
			for _, a := range addresses {
				targets = append(targets, on(a, spec))
			}
			start := time.Now()
			m.Set(targets)
			time.Sleep(20 * 4 * time.Second)
			synctest.Wait()
			var first []time.Time
			for _, a := range addresses {
				starts := m.backends[a].take()
				first = append(first, starts[0])
				if n := len(starts); n < 18 || n > 23 {
					t.Errorf("%d probes of %s in 20 intervals", n, a)
				}
			}
			slices.SortFunc(first, time.Time.Compare)
			slot := startWindow / 20
			for i, at := range first {
				if from := slot * time.Duration(i); at.Sub(start) < from || at.Sub(start) > from+slot {
					t.Errorf("first probe %d comes after %v, want it in the %v from %v on", i, at.Sub(start), slot, from)
				}
			}
		})
	}
}

// Case O-32: reloading often neither multiplies the probes nor starves them.
func TestMonitorRateIsUntouchedByReloads(t *testing.T) {
	spec := testSpec
	spec.Interval, spec.FastInterval, spec.DownInterval = 500*time.Millisecond, 0, 0
	for name, reload := range map[string]func(i int, spec Spec) Spec{
		"same":             func(_ int, spec Spec) Spec { return spec },
		"other thresholds": func(i int, spec Spec) Spec { spec.Rise = 1 + i%2; return spec },
		"other check":      func(i int, spec Spec) Spec { spec.Port = 1000 + i%2; return spec },
		"other timeout":    func(i int, spec Spec) Spec { spec.Timeout += time.Duration(i); return spec },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newTestMonitor("a", "b", "extra")
				defer m.Close()
				m.Set([]Target{on("a", spec), on("b", spec)})
				time.Sleep(time.Second)
				m.backends["a"].take()
				m.backends["b"].take()
				for i := range 50 {
					spec := reload(i, spec)
					targets := []Target{on("b", spec), on("a", spec)}
					if i%2 == 0 {
						targets = append(targets, on("extra", spec))
					}
					m.Set(targets)
					time.Sleep(200 * time.Millisecond)
				}
				for _, address := range []string{"a", "b"} {
					b := m.backends[address]
					if n := len(b.take()); n < 17 || n > 23 {
						t.Errorf("%s was probed %d times in 10 s, want 20", address, n)
					}
					if _, most := b.flying(); most > 1 {
						t.Errorf("%s was probed by %d at once", address, most)
					}
				}
				// The last Set was without it.
				m.backends["extra"].take()
				time.Sleep(10 * time.Second)
				if n := len(m.backends["extra"].take()); n > 0 {
					t.Errorf("a removed target was probed %d times", n)
				}
				if ch := m.take(); ch != nil {
					t.Errorf("changes %v", ch)
				}
			})
		})
	}
}

func TestMonitorChangedIntervalTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a, spec := m.backends["a"], testSpec
		spec.Interval = time.Hour
		m.Set([]Target{on("a", spec)})
		time.Sleep(10 * time.Minute)
		a.take()
		spec.Interval = time.Second
		m.Set([]Target{on("a", spec)})
		start := time.Now()
		time.Sleep(10 * time.Second)
		starts := a.take()
		if first := starts[0].Sub(start); first > startWindow {
			t.Errorf("the first probe came after %v", first)
		}
		wantGaps(t, starts[:5], time.Second, time.Second, time.Second, time.Second)
		spec.Interval = time.Minute
		m.Set([]Target{on("a", spec)})
		time.Sleep(30 * time.Second)
		if n := len(a.take()); n > 0 {
			t.Errorf("%d probes in half an interval", n)
		}
	})
}

// Probes that take longer than the interval follow each other; they do not pile up.
func TestMonitorOneProbeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a, spec := m.backends["a"], testSpec
		spec.Interval, spec.FastInterval, spec.DownInterval = 100*time.Millisecond, 0, 0
		a.set(nil, time.Hour) // each ends with its timeout, a second
		m.Set([]Target{on("a", spec)})
		time.Sleep(20*time.Second + startWindow)
		if n := len(a.take()); n < 20 || n > 22 {
			t.Errorf("%d probes in 20 s, want one a second", n)
		}
		if _, most := a.flying(); most != 1 {
			t.Errorf("%d probes at once", most)
		}
		if st, _ := m.Status("pool|a"); st.Up || st.Reason != L7TOUT || st.Took != time.Second {
			t.Errorf("%+v", st)
		}
	})
}

// Case O-49's kind: what nothing could probe for a while is asked again over one interval,
// and not all in the moment in which that is over. Here nothing takes the verdicts.
func TestMonitorSpreadsOverdueProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var addresses []string
		for i := range 50 {
			addresses = append(addresses, fmt.Sprint("b", i))
		}
		tm := newTestMonitor(addresses...)
		tm.Close()
		free := make(chan struct{})
		m := NewMonitor(func(string, bool, Status) { <-free }, nil)
		defer m.Close()
		m.prober = func(t Target) Prober { return tm.backends[t.Address] }
		spec := Spec{Type: "tcp", Interval: 2 * time.Second, DownInterval: time.Minute, Timeout: time.Second, Rise: 1, Fall: 1}
		var targets []Target
		for _, a := range addresses {
			tm.backends[a].set(errRefused, 0)
			targets = append(targets, on(a, spec))
		}
		m.Set(targets)
		time.Sleep(time.Hour)
		for _, a := range addresses {
			tm.backends[a].take()
		}
		freed := time.Now()
		close(free)
		time.Sleep(spec.Interval)
		synctest.Wait()
		atOnce := 0
		for _, a := range addresses {
			starts := tm.backends[a].take()
			if len(starts) != 1 {
				t.Errorf("%d probes of %s within an interval", len(starts), a)
			} else if starts[0].Sub(freed) < spec.Interval/10 {
				atOnce++
			}
		}
		if atOnce > 20 {
			t.Errorf("%d of %d come within a tenth of the interval", atOnce, len(addresses))
		}
	})
}
