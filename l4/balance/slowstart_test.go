package balance

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Share properties of slow start, on virtual time, for every algorithm. Flows are
// short, one after the other, from ever new clients.
func eachSlowStart(t *testing.T, test func(t *testing.T, p *Pool, spec Spec)) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		synctest.Test(t, func(t *testing.T) {
			spec := poolSpec(algorithm, 100, 100, 100, 100)
			spec.SlowStart = 20 * time.Second
			for i := range spec.Backends {
				spec.Backends[i].MaxConnections = 1000
			}
			p := New(spec, seeded(t))
			test(t, p, spec)
			p.Update(Spec{Algorithm: algorithm}) // nothing goes on
		})
	})
}

// during runs n flows a second, evenly, for d and returns how many each second
// brought to the backend called name.
func during(t *testing.T, p *Pool, name string, client *int, n int, d time.Duration) (counts []int) {
	t.Helper()
	for range int(d / time.Second) {
		got := 0
		for range n {
			*client++
			if touch(t, p, flow(*client)) == name {
				got++
			}
			time.Sleep(time.Second / time.Duration(n))
		}
		counts = append(counts, got)
	}
	return counts
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// afterStart is how many of n flows b0 gets once its start is over: first gives
// its first member all.
func afterStart(algorithm string, n int) int {
	if algorithm == "first" {
		return n
	}
	return n / 4
}

func TestSlowStartOfARecoveredBackend(t *testing.T) {
	eachSlowStart(t, func(t *testing.T, p *Pool, spec Spec) {
		const rate = 400
		client := 0
		id := spec.Backends[0].id()
		p.SetFlag(id, Down, true)
		during(t, p, "b0", &client, rate, 2*time.Second)
		p.SetFlag(id, Down, false)
		checkRamp(t, during(t, p, "b0", &client, rate, 20*time.Second), rate/4)
		after := during(t, p, "b0", &client, rate, 5*time.Second)
		if want := 5 * afterStart(spec.Algorithm, rate); sum(after) < want*8/10 || sum(after) > want*12/10 {
			t.Errorf("afterwards %v, want about %d each", after, want/5)
		}
	})
}

// checkRamp checks the share of a starting backend, second by second.
func checkRamp(t *testing.T, counts []int, fair int) {
	t.Helper()
	n := len(counts)
	for i, got := range counts {
		// Algorithms that draw vary a little around what is due.
		if got > fair*3/2 {
			t.Errorf("second %d: %d flows, a fair share is %d: %v", i, got, fair, counts)
		}
	}
	if counts[0] == 0 || sum(counts[:2]) > 2*fair*3/10 {
		t.Errorf("the first seconds bring %v, want little but not nothing of %d", counts[:2], fair)
	}
	quarters := [4]int{}
	for i, got := range counts {
		quarters[i*4/n] += got
	}
	if !slices.IsSorted(quarters[:]) {
		t.Errorf("the share does not rise: %v", counts)
	}
	if total := sum(counts); total < n*fair*35/100 || total > n*fair*70/100 {
		t.Errorf("%d flows in all, want about half of %d: %v", total, n*fair, counts)
	}
}

func TestSlowStartOfANewBackend(t *testing.T) {
	eachSlowStart(t, func(t *testing.T, p *Pool, spec Spec) {
		const rate = 500
		client := 0
		spec.Backends = append(spec.Backends, backendSpec(7, 100))
		p.Update(spec)
		checkRamp(t, during(t, p, "b7", &client, rate, 20*time.Second), rate/5)
	})
}

// Long flows: the starting backend is by far the least loaded all the time, and
// still gets no more than its fair share.
func TestSlowStartWithLongFlows(t *testing.T) {
	eachSlowStart(t, func(t *testing.T, p *Pool, spec Spec) {
		id := spec.Backends[3].id()
		p.SetFlag(id, Maint, true)
		for i := range 300 {
			acquire(t, p, flow(i))
		}
		p.SetFlag(id, Maint, false)
		b := p.Backends()[3]
		client, before := 1000, int64(0)
		for second := range 20 {
			for range 40 {
				client++
				acquire(t, p, flow(client))
				time.Sleep(time.Second / 40)
			}
			got := b.Active() - before
			before = b.Active()
			if limit := int64(10); got > limit+6 {
				t.Errorf("second %d: %d flows of 40, a fair share is %d", second, got, limit)
			}
		}
		if before == 0 {
			t.Error("starved")
		}
	})
}

// Recovering again starts again.
func TestSlowStartRestarts(t *testing.T) {
	eachSlowStart(t, func(t *testing.T, p *Pool, spec Spec) {
		id, client := spec.Backends[2].id(), 0
		for range 3 {
			p.SetFlag(id, Down, true)
			p.SetFlag(id, Down, false)
			late := during(t, p, "b2", &client, 400, 15*time.Second)
			if sum(late[:2]) > 60 || sum(late[:2]) == 0 {
				t.Errorf("the first seconds bring %v of 400", late)
			}
		}
	})
}

// A process that starts, and a pool all of whose backends come back together,
// have nobody to spare anybody: all get full shares and none is refused.
func TestSlowStartOfAll(t *testing.T) {
	eachSlowStart(t, func(t *testing.T, p *Pool, spec Spec) {
		even := func(when string) {
			t.Helper()
			if v := p.view.Load(); v.lane != nil || len(v.strategies[0].members) != 4 {
				t.Errorf("%s: %d members for the algorithm", when, len(v.strategies[0].members))
			}
			for i := range 100 {
				touch(t, p, flow(i))
			}
		}
		even("at the start")
		for _, b := range spec.Backends {
			p.SetFlag(b.id(), Down, true)
		}
		for _, b := range spec.Backends {
			p.SetFlag(b.id(), Down, false)
		}
		even("after an outage of all")
		time.Sleep(10 * time.Second)
		even("midway")
		time.Sleep(20 * time.Second)
		even("afterwards")
	})
}

// One that joins while all others are starting is behind them.
func TestSlowStartIsRelative(t *testing.T) {
	eachSlowStart(t, func(t *testing.T, p *Pool, spec Spec) {
		for _, b := range spec.Backends {
			p.SetFlag(b.id(), Down, true)
		}
		for _, b := range spec.Backends[:3] {
			p.SetFlag(b.id(), Down, false)
		}
		time.Sleep(10 * time.Second)
		p.SetFlag(spec.Backends[3].id(), Down, false)
		client := 0
		// It has 1 step of 20 and they have 10: a tenth of its quarter.
		if got := sum(during(t, p, "b3", &client, 400, time.Second)); got == 0 || got > 30 {
			t.Errorf("%d flows of 400", got)
		}
	})
}

// A starting backend that is the only one left is better than none.
func TestSlowStartIsNoRefusal(t *testing.T) {
	eachSlowStart(t, func(t *testing.T, p *Pool, spec Spec) {
		for i := range spec.Backends {
			spec.Backends[i].MaxConnections = 2
		}
		p.Update(spec)
		p.SetFlag(spec.Backends[1].id(), Down, true)
		p.SetFlag(spec.Backends[1].id(), Down, false)
		for i := range 8 {
			acquire(t, p, flow(i))
		}
		only := func(b *Backend) bool { return b.Name() != "b1" }
		p.Backends()[1].load.Active.Store(0)
		if lease, err := p.Acquire(flow(1), only); err != nil || lease.Backend().Name() != "b1" {
			t.Errorf("the last one left is starting: %v, %v", lease.Backend(), err)
		}
	})
}

func TestRampSteps(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, window := range []time.Duration{1, 18, 19, 20, time.Millisecond, time.Second, time.Hour} {
		now, seen := start, 0
		for {
			step, next := rampStep(start, now, window)
			if step != seen+1 && (window >= time.Millisecond || step <= seen) {
				t.Fatalf("%v: step %d after %d", window, step, seen)
			}
			seen = step
			if next.IsZero() {
				break
			}
			if !next.After(now) || next.After(start.Add(window)) {
				t.Fatalf("%v: next step at %v, now is %v", window, next.Sub(start), now.Sub(start))
			}
			now = next
		}
		if seen != rampSteps || now != start.Add(window) {
			t.Errorf("%v: ends with step %d at %v", window, seen, now.Sub(start))
		}
	}
	if step, next := rampStep(time.Time{}, start, time.Hour); step != rampSteps || !next.IsZero() {
		t.Errorf("nobody in a slow start: step %d", step)
	}
}

// The lane's share is exact, also when it changes faster than it gives turns.
func TestLaneShares(t *testing.T) {
	backends := New(poolSpec("first", 1, 1, 1), nil).Backends()
	for _, shares := range [][]float64{{0.01}, {0.5}, {0.2, 0.2, 0.2}, {0.3, 0.01, 0.1}, {0.999999}} {
		for _, changeEvery := range []int{1, 7, 100000} {
			t.Run(fmt.Sprint(shares, changeEvery), func(t *testing.T) {
				const n = 30000
				var l *lane
				got := map[*Backend]int{}
				for i := range n {
					if i%changeEvery == 0 {
						l = newLane(nil, backends[:len(shares)], shares, l)
					}
					if b := l.due(); b != nil {
						got[b]++
					}
				}
				for i, s := range shares {
					if want := s * n; float64(got[backends[i]]) < want*0.98-3 || float64(got[backends[i]]) > want*1.02+3 {
						t.Errorf("share %v: %d of %d", s, got[backends[i]], n)
					}
				}
			})
		}
	}
}
