package admit

import (
	"math"
	"sync/atomic"
)

// A rate is a limit in the terms of the generic cell rate algorithm: an admission
// every interval nanoseconds, burst nanoseconds' worth of them at once. The zero
// rate is no limit.
type rate struct {
	interval, burst int64
}

// slowest bounds the interval, so that adding to a time cannot overflow.
const slowest = int64(1) << 55 // ns, 417 days

// newRate returns the rate of so many a second; 0 is no limit. Intervals are whole
// nanoseconds, which makes a million a second at most 0.05 % wrong.
func newRate(perSecond float64) rate {
	if perSecond == 0 {
		return rate{}
	}
	interval := int64(min(max(math.Round(1e9/perSecond), 1), float64(slowest)))
	atOnce := int64(min(max(perSecond, 1), 1e9))
	return rate{interval, atOnce * interval}
}

func (r rate) unlimited() bool { return r.interval == 0 }

// next returns the state after one more admission at now, or false and the state
// to keep if that would be one too many. State is the time up to which the
// allowance is used up; anything not after now means that it is whole.
func (r rate) next(state, now int64) (int64, bool) {
	if r.unlimited() {
		return 0, true
	}
	// More than a burst ahead is only what the slower rate of an older policy has
	// left. It is kept as one burst, which runs out from now on.
	state = min(max(state, now), now+r.burst)
	if state+r.interval > now+r.burst {
		return state, false
	}
	return state + r.interval, true
}

// A meter is the state of a rate that several goroutines use.
type meter struct{ state atomic.Int64 }

// has reports whether take would succeed.
func (m *meter) has(r rate, now int64) bool {
	state := m.state.Load()
	keep, ok := r.next(state, now)
	if !ok && keep != state {
		m.state.CompareAndSwap(state, keep) // or somebody else has just done so
	}
	return ok
}

// take admits one, unless that is one too many.
func (m *meter) take(r rate, now int64) bool {
	if r.unlimited() {
		return true // what another policy has used up stays
	}
	for {
		state := m.state.Load()
		next, ok := r.next(state, now)
		if next == state || m.state.CompareAndSwap(state, next) {
			return ok
		}
	}
}
