package balance

import (
	"sync/atomic"
	"time"
)

// budgetWindow is how far a retry budget looks back.
const budgetWindow = 10 * time.Second

// budgetTerm is one window's account. What is granted and when stays out of
// Acquire: flows are the leases that backends have counted anyhow.
type budgetTerm struct {
	start   time.Time
	granted uint64 // leases granted by the pool when it began
	retries atomic.Int64

	lastFlows, lastRetries float64 // of the window before
}

// AllowRetry reports whether one more retry is within the pool's budget, and
// counts it if so. It takes no lock. Over a sliding window of ten seconds retries
// are at most Percent of the new flows plus Floor for each second: a few broken
// backends are covered, while a pool that fails as a whole gets little more than
// the load that clients bring.
func (p *Pool) AllowRetry() bool {
	v := p.view.Load()
	if v.retry == (RetryBudget{}) {
		return true
	}
	now, granted := time.Now(), v.granted()
	t := p.budget.Load()
	if now.Sub(t.start) >= budgetWindow {
		next := t.following(now, granted)
		if p.budget.CompareAndSwap(t, next) {
			t = next
		} else {
			t = p.budget.Load()
		}
	}
	retries := t.retries.Add(1)
	left := 1 - float64(max(now.Sub(t.start), 0))/float64(budgetWindow) // of the last window
	left = max(left, 0)
	flows := t.flows(granted, retries-1) + t.lastFlows*left
	allowed := float64(v.retry.Floor)*budgetWindow.Seconds() + flows*float64(v.retry.Percent)/100
	if float64(retries)+t.lastRetries*left > allowed {
		t.retries.Add(-1)
		p.denied.Add(1)
		return false
	}
	return true
}

// flows is how many new flows there were in this window. Leases of removed
// backends are no longer counted, which can only be too few.
func (t *budgetTerm) flows(granted uint64, retries int64) float64 {
	return max(float64(granted)-float64(t.granted)-float64(retries), 0)
}

// following starts a new window at now. Of what was before, as much counts as
// would fit one window.
func (t *budgetTerm) following(now time.Time, granted uint64) *budgetTerm {
	part := float64(budgetWindow) / float64(now.Sub(t.start))
	retries := t.retries.Load()
	return &budgetTerm{
		start: now, granted: granted,
		lastFlows: t.flows(granted, retries) * part, lastRetries: float64(retries) * part,
	}
}

// granted is the leases ever granted by the backends of v.
func (v *view) granted() (n uint64) {
	for _, b := range v.backends {
		n += b.Total()
	}
	for _, b := range v.leaving {
		n += b.Total()
	}
	return n
}
