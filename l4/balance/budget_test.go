package balance

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/poise-lb/poise/l4"
)

// attempts runs n new flows a second for d, all of which want retries retries, and
// returns how many were allowed.
func attempts(t *testing.T, p *Pool, n, retries int, d time.Duration) (allowed int) {
	t.Helper()
	for range int(d/time.Second) * n {
		touch(t, p, flow(1))
		for range retries {
			if p.AllowRetry(l4.Failed, netip.Addr{}) {
				allowed++
				touch(t, p, flow(1)) // the retry's own lease
			}
		}
		time.Sleep(time.Second / time.Duration(n))
	}
	return allowed
}

func TestRetryBudget(t *testing.T) {
	for _, c := range []struct {
		name           string
		budget         RetryBudget
		rate, retries  int
		atLeast, atMax int // allowed in 100 s
	}{
		{"none set", RetryBudget{}, 100, 2, 20000, 20000},
		{"a storm", RetryBudget{Percent: 20, Floor: 1}, 100, 2, 1900, 2250},
		{"within it", RetryBudget{Percent: 200, Floor: 1}, 100, 1, 10000, 10000},
		{"floor only", RetryBudget{Floor: 10}, 50, 1, 900, 1110},
		{"a quiet pool lives on the floor", RetryBudget{Percent: 20, Floor: 10}, 5, 1, 500, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := poolSpec("round-robin", 1, 1)
				spec.Retry = c.budget
				p := New(spec, nil)
				if got := attempts(t, p, c.rate, c.retries, 100*time.Second); got < c.atLeast || got > c.atMax {
					t.Errorf("%d retries of %d flows, want %d to %d", got, 100*c.rate, c.atLeast, c.atMax)
				}
			})
		})
	}
}

// After hours without retries the budget is that of ten seconds, not of hours.
func TestRetryBudgetDoesNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := poolSpec("round-robin", 1, 1)
		spec.Retry = RetryBudget{Percent: 20, Floor: 1}
		p := New(spec, nil)
		attempts(t, p, 100, 0, time.Hour)
		burst := 0
		for p.AllowRetry(l4.Failed, netip.Addr{}) {
			burst++
		}
		if burst < 190 || burst > 220 { // 1000 flows in ten seconds, and the floor
			t.Errorf("%d retries at once", burst)
		}
		p.Update(Spec{Algorithm: "first", Retry: spec.Retry}) // its counters go
		time.Sleep(time.Minute)
		p.AllowRetry(l4.Failed, netip.Addr{})
	})
}

func TestRetryBudgetUnderConcurrency(t *testing.T) {
	spec := poolSpec("round-robin", 1, 1)
	spec.Retry = RetryBudget{Percent: 0, Floor: 10}
	p := New(spec, nil)
	var allowed atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range 4 {
		all.Go(func() {
			for range 5000 {
				if p.AllowRetry(l4.Failed, netip.Addr{}) {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	windows := int64(time.Since(start)/budgetWindow) + 1
	if n := allowed.Load(); n > 100*windows || n < 90 {
		t.Errorf("%d allowed in %d windows of 100", n, windows)
	}
}
