package health

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// clocked notes when its targets are probed; every probe passes at once.
type clocked struct {
	mu sync.Mutex // guards the following
	at []time.Time
	of map[string]bool
}

type clockedProber struct {
	*clocked
	key string
}

func (p clockedProber) Probe(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.of[p.key] = append(p.at, time.Now()), true
	return nil
}

// fullest is the most probes that any 100 ms between two times have seen.
func (c *clocked) fullest(from, to time.Time) (most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	buckets := map[int64]int{}
	for _, at := range c.at {
		if !at.Before(from) && at.Before(to) {
			b := int64(at.Sub(from) / (100 * time.Millisecond))
			buckets[b]++
			most = max(most, buckets[b])
		}
	}
	return most
}

// Case O-55: the probes of many targets are spread over the interval, after a start,
// when they have settled and after a reload that changes the check.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, interval = 300, 2 * time.Second
		c := &clocked{of: map[string]bool{}}
		m := NewMonitor(func(string, bool, Status) {}, nil)
		m.prober = func(tg Target) Prober { return clockedProber{c, tg.Key} }
		defer m.Close()
		set := func(interval time.Duration) {
			var targets []Target
			for i := range n {
				targets = append(targets, Target{
					Key: fmt.Sprint(i), Network: "tcp", Address: fmt.Sprintf("127.0.%d.%d:80", i/250, i%250+1),
					Spec: Spec{Type: "tcp", Interval: interval, Timeout: time.Second, Rise: 1, Fall: 3},
				})
			}
			m.Set(targets)
		}
		expect := func(when string, from, to time.Time) {
			t.Helper()
			synctest.Wait()
			most := c.fullest(from, to)
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case most > n/3:
				t.Errorf("%s: %d of %d in 100 ms", when, most, n)
			case len(c.of) != n:
				t.Errorf("%s: %d of %d were probed", when, len(c.of), n)
			}
			clear(c.of)
		}
		start := time.Now()
		set(interval)
		time.Sleep(2 * interval)
		expect("after the start", start, start.Add(interval))
		time.Sleep(2 * interval)
		expect("later", start.Add(4*time.Second), start.Add(8*time.Second))
		reload := time.Now()
		set(interval + time.Millisecond)
		time.Sleep(6 * time.Second)
		expect("after the reload", reload, reload.Add(6*time.Second))
	})
}
