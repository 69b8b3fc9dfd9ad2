package health

import (
	"testing"
	"testing/synctest"
	"time"
)

// Somebody suspects a backend: it is probed at once, once, and the turns go on
// from there.
func TestProbeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a", "b")
		defer m.Close()
		a := m.backends["a"]
		spec := testSpec
		spec.Interval, spec.FastInterval, spec.DownInterval, spec.Fall = time.Hour, time.Minute, time.Hour, 2
		none := testSpec
		none.Type = "none"
		m.Set([]Target{on("a", spec), on("b", none)})
		time.Sleep(startWindow)
		synctest.Wait()
		if n := len(a.take()); n != 1 {
			t.Fatalf("%d probes at first", n)
		}

		a.set(errRefused, 100*time.Millisecond)
		asked := time.Now()
		m.ProbeNow("pool|a")
		m.ProbeNow("pool|a")
		synctest.Wait()
		m.ProbeNow("pool|a") // one is under way, and will do
		m.ProbeNow("pool|b") // is not probed
		m.ProbeNow("pool|c") // does not exist
		time.Sleep(spec.FastInterval * 3 / 2)
		synctest.Wait()
		starts := a.take()
		if len(starts) != 2 || starts[0] != asked {
			t.Fatalf("asked at %v, probed at %v", asked, starts)
		}
		wantGaps(t, starts, spec.FastInterval)
		if st, _ := m.Status("pool|a"); st.Up {
			t.Error("two failures, and still up")
		}
		if n := len(m.backends["b"].take()); n != 0 {
			t.Errorf("b was probed %d times", n)
		}

		// Together with a reload that changes the interval.
		m.Set([]Target{on("a", testSpec), on("b", none)})
		m.ProbeNow("pool|a")
		asked = time.Now()
		synctest.Wait()
		if starts := a.take(); len(starts) != 1 || starts[0] != asked {
			t.Errorf("asked at %v, probed at %v", asked, starts)
		}
	})
}
