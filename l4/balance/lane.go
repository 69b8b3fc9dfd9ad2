package balance

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A lane is the way to those members that must not be left to the algorithm now:
// half-open ones, which get a counted number of flows, and those in slow start,
// which get a counted part. Any algorithm would either starve or flood them: to
// least-conn, a backend that was down looks like the best there is. So they are
// not among the members of the picker, which never hears of them, and each flow is
// offered to the lane first.
type lane struct {
	trials []*Backend

	// Slow start. Of n flows, the lane gets n times share, rounded, in even
	// steps; its members divide that by their own shares.
	slow  []slowMember
	share uint64 // of 2^64
	phase uint64 // of the first step, of 2^64: carries the rest of the lane before
	turns uint64 // had by the lanes before

	_ [cacheLine]byte
	n atomic.Uint64 // flows
	_ [cacheLine]byte
}

type slowMember struct {
	*Backend
	upTo uint64 // end of its part of the lane, of 2^64
}

// trial is the account of a half-open backend.
type trial struct{ left atomic.Int64 }

// take takes one trial, if any is left.
func (t *trial) take() bool {
	for {
		n := t.left.Load()
		if n <= 0 {
			return false
		}
		if t.left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// lease returns a trial that is due, with its load taken: of the first half-open
// member that has one left.
func (l *lane) lease(skip func(*Backend) bool) Lease {
	for _, b := range l.trials {
		if skip != nil && skip(b) {
			continue
		}
		t := b.trial.Load()
		if t == nil || !t.take() {
			continue
		}
		if b.take() {
			return Lease{backend: b, trial: t, held: true}
		}
		t.left.Add(1)
	}
	return Lease{}
}

// due returns the member in slow start whose turn this flow is, nil if it is for
// the picker.
func (l *lane) due() *Backend {
	n := l.n.Add(1)
	before, after := l.steps(n-1), l.steps(n)
	if before == after {
		return nil
	}
	// Multiples of the golden ratio fall evenly into any division of the whole.
	at := (l.turns + after) * 0x9e3779b97f4a7c15
	for _, m := range l.slow {
		if at < m.upTo {
			return m.Backend
		}
	}
	return l.slow[len(l.slow)-1].Backend
}

// steps is how many of n flows are the lane's.
func (l *lane) steps(n uint64) uint64 {
	hi, lo := bits.Mul64(n, l.share)
	_, carry := bits.Add64(lo, l.phase, 0)
	return hi + carry
}

// anyLease returns load on any member in slow start: when all others are full or
// refused it is better than nothing.
func (l *lane) anyLease(skip func(*Backend) bool) *Backend {
	for _, m := range l.slow {
		if (skip == nil || !skip(m.Backend)) && m.take() {
			return m.Backend
		}
	}
	return nil
}

// newLane returns the way to the half-open members and those in slow start, whose
// shares are parts of all flows; nil if there are none. It goes on where the lane
// before it stopped, so that many small changes starve nobody.
func newLane(trials, slow []*Backend, shares []float64, before *lane) *lane {
	if len(trials)+len(slow) == 0 {
		return nil
	}
	l := &lane{trials: trials, phase: 1 << 63}
	if before != nil && len(before.slow) > 0 {
		n := before.n.Load()
		l.turns = before.turns + before.steps(n)
		_, lo := bits.Mul64(n, before.share)
		l.phase = lo + before.phase
	}
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	// As the picker has members too, the sum is below 1.
	l.share = uint64(min(sum, 1-1.0/(1<<32)) * math.Exp2(64))
	upTo := 0.0
	for i, b := range slow {
		upTo += shares[i] / sum
		l.slow = append(l.slow, slowMember{b, uint64(min(upTo, 1-1.0/(1<<32)) * math.Exp2(64))})
	}
	return l
}

// rampSteps is in how many steps a slow start goes: each changes a share by 5 %
// of itself, and even of a window of a second takes 50 ms.
const rampSteps = 20

// rampStep returns which step, 1 to rampSteps, a slow start that began at since
// has reached, and when the next one is due; zero if it is over.
func rampStep(since, now time.Time, window time.Duration) (step int, next time.Time) {
	age := max(now.Sub(since), 0)
	if since.IsZero() || age >= window {
		return rampSteps, time.Time{}
	}
	// The last step is the end of the window.
	part := (window + rampSteps - 2) / (rampSteps - 1)
	step = 1 + int(age/part)
	return step, since.Add(min(part*time.Duration(step), window))
}
