package balance

import (
	"testing"
	"testing/synctest"
	"time"
)

// closedLoop runs clients that each hold one flow at a time for d of virtual time;
// serve says how long backend number i takes, or that it fails at once. It returns
// the flows done, and the failures, of each.
func closedLoop(t *testing.T, p *Pool, clients int, d time.Duration, serve func(i int) (time.Duration, bool)) (done, failed [8]int) {
	t.Helper()
	end := time.Now().Add(d)
	results := make(chan [2]int, 1000)
	for c := range clients {
		go func() {
			for i := 0; time.Now().Before(end); i++ {
				lease, err := p.Acquire(flow(c*1000+i%1000), nil)
				if err != nil {
					t.Error(err)
					break
				}
				n := int(lease.Backend().Name()[1] - '0')
				took, ok := serve(n)
				time.Sleep(took)
				lease.Report(ok, took)
				lease.Release()
				if !ok {
					results <- [2]int{n, 1}
					continue
				}
				results <- [2]int{n, 0}
			}
			results <- [2]int{-1}
		}()
	}
	for left := clients; left > 0; {
		switch r := <-results; {
		case r[0] < 0:
			left--
		case r[1] == 1:
			failed[r[0]]++
		default:
			done[r[0]]++
		}
	}
	return done, failed
}

// A backend that fails at once is always the least loaded. It must not get more
// than it takes to see whether it is well again.
func TestFastFailureAttractsNothing(t *testing.T) {
	for _, algorithm := range []string{"least-conn", "p2c", "fastest", "ewma", "adaptive"} {
		t.Run(algorithm, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(poolSpec(algorithm, equal(5)...), seeded(t))
				done, failed := closedLoop(t, p, 50, 30*time.Second, func(i int) (time.Duration, bool) {
					switch i {
					case 4:
						return time.Millisecond, false
					case 2, 3:
						return time.Duration(i) * 40 * time.Millisecond, true
					}
					return 40 * time.Millisecond, true
				})
				total := done[0] + done[1] + done[2] + done[3]
				if failed[4] == 0 || failed[4] > total/20 {
					t.Errorf("%d failures, done %v", failed[4], done)
				}
				t.Logf("%d failures, done %v", failed[4], done)
			})
		})
	}
}

// Of equal backends one becomes slow: the algorithms that look give it less, and
// find out when it is well again.
func TestSlowBackendGetsLessAndComesBack(t *testing.T) {
	for _, algorithm := range []string{"fastest", "ewma"} {
		t.Run(algorithm, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(poolSpec(algorithm, equal(4)...), seeded(t))
				slow := time.Second
				serve := func(i int) (time.Duration, bool) {
					if i == 3 {
						return slow, true
					}
					return 20 * time.Millisecond, true
				}
				done, _ := closedLoop(t, p, 20, 30*time.Second, serve)
				if others := (done[0] + done[1] + done[2]) / 3; done[3] > others/20 || done[3] == 0 {
					t.Errorf("slow: %v", done)
				}
				slow = 20 * time.Millisecond
				closedLoop(t, p, 20, 60*time.Second, serve)
				done, _ = closedLoop(t, p, 20, 30*time.Second, serve)
				if others := (done[0] + done[1] + done[2]) / 3; done[3] < others/2 {
					t.Errorf("well again: %v", done)
				}
			})
		})
	}
}

// Merit falls with failures, rises with successes, and never to nothing.
func TestAdaptiveMerit(t *testing.T) {
	for _, c := range []struct {
		fails     int // one in so many
		low, high float64
	}{
		{1, 0.005, 0.03}, {2, 0.1, 0.35}, {10, 0.55, 0.85}, {100, 0.9, 1},
	} {
		p := New(poolSpec("adaptive", 100, 100), seeded(t))
		counts := [2]int{}
		for i := range 20000 {
			lease := acquire(t, p, flow(i))
			n := lease.Backend().Name()[1] - '0'
			counts[n]++
			lease.Report(n == 0 || counts[n]%c.fails != 0, time.Millisecond)
			lease.Release()
		}
		if ratio := float64(counts[1]) / float64(counts[0]); ratio < c.low || ratio > c.high {
			t.Errorf("1 of %d fails: share %.3f of its own, want %v to %v", c.fails, ratio, c.low, c.high)
		}
	}
}

// A penalty fades: one failure counts as one flow for ten seconds.
func TestPenaltyFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(poolSpec("least-conn", 1, 1), nil)
		b := p.Backends()[0]
		burden := func() int64 { p.clock.read(); return b.load.burden(&p.clock) }
		b.failed()
		if burden() != 1 {
			t.Errorf("%d after one failure", burden())
		}
		time.Sleep(9 * time.Second)
		if burden() != 1 {
			t.Errorf("%d after 9 s", burden())
		}
		time.Sleep(2 * time.Second)
		if burden() != 0 {
			t.Errorf("%d after 11 s", burden())
		}
		for range 100 {
			b.failed()
		}
		if n := burden(); n < 99 || n > 101 {
			t.Errorf("%d after a hundred", n)
		}
		for range 8 {
			b.succeeded(time.Millisecond)
		}
		if burden() != 0 || b.load.Failing.Load() != 0 {
			t.Errorf("%d after successes", burden())
		}
	})
}

// The clock wraps after 49 days; times that look like the future count as now.
func TestClockWraps(t *testing.T) {
	for _, c := range []struct {
		at, now uint32
		want    float64
	}{{0, 0, 0}, {0, 5, 5}, {5, 0, 0}, {1<<32 - 3, 4, 7}, {0, 1 << 31, 0}} {
		if got := since(c.at, c.now); got != c.want {
			t.Errorf("from %d to %d: %v, want %v", c.at, c.now, got, c.want)
		}
	}
	if e := estimate(packed(100, 0), uint32(fadeOver/time.Millisecond)/2, 100); e < 74.9 || e > 75.1 {
		t.Errorf("half faded: %v", e)
	}
	if e := estimate(packed(100, 0), uint32(fadeOver/time.Millisecond), 100); e != 50 {
		t.Errorf("all faded: %v", e)
	}
	if e := estimate(packed(100, 9), 3, 50); e != 100 {
		t.Errorf("from the future: %v", e)
	}
}
