package balance

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
)

// budgetWindow is how far a retry budget looks back.
const budgetWindow = 10 * time.Second

// budgetTerm is one window's account. What is granted and when stays out of
// Acquire: flows are the leases that backends have counted anyhow.
type budgetTerm struct {
	start   time.Time
	granted uint64 // leases granted by the pool when it began
	retries atomic.Int64
	doubts  atomic.Pointer[doubts] // nil: no retry so far was for a doubtful failure

	lastFlows, lastRetries float64 // of the window before
}

// AllowRetry reports whether one more retry is within the pool's budget, and
// counts it if so. It takes no lock. Over a sliding window of ten seconds retries
// are at most Percent of the new flows plus Floor for each second: a few broken
// backends are covered, while a pool that fails as a whole gets little more than
// the load that clients bring. Evidence is what the failure before the retry says about
// its backend. What is Doubtful may be the client's own doing, so of those retries it
// gets a share only; see doubts.
func (p *Pool) AllowRetry(e l4.Evidence, client netip.Addr) bool {
	return p.allowRetry(time.Now(), e, client)
}

func (p *Pool) allowRetry(now time.Time, e l4.Evidence, client netip.Addr) bool {
	v := p.view.Load()
	if v.retry == (RetryBudget{}) {
		return true
	}
	granted := v.granted()
	t := p.term(now, granted)
	left := 1 - float64(max(now.Sub(t.start), 0))/float64(budgetWindow) // of the last window
	left = max(left, 0)
	flows := t.flows(granted, t.retries.Load()) + t.lastFlows*left
	allowed := float64(v.retry.Floor)*budgetWindow.Seconds() + flows*float64(v.retry.Percent)/100
	var d *doubts // before the retry is counted: one that is denied must not be in the way of others
	if e == l4.Doubtful {
		if d = t.doubtful(p.rand); !d.take(client, allowed/2, left) {
			p.denied.Add(1)
			return false
		}
	}
	if retries := t.retries.Add(1); float64(retries)+t.lastRetries*left > allowed {
		t.retries.Add(-1)
		if d != nil {
			d.giveBack(client)
		}
		p.denied.Add(1)
		return false
	}
	return true
}

// term is the window that now is in.
func (p *Pool) term(now time.Time, granted uint64) *budgetTerm {
	t := p.budget.Load()
	if now.Sub(t.start) < budgetWindow {
		return t
	}
	if next := t.following(now, granted); p.budget.CompareAndSwap(t, next) {
		return next
	}
	return p.budget.Load()
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
	next := &budgetTerm{
		start: now, granted: granted,
		lastFlows: t.flows(granted, retries) * part, lastRetries: float64(retries) * part,
	}
	next.doubts.Store(t.doubts.Load().following(part))
	return next
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
