package balance

import (
	"math"
	"sync/atomic"
	"time"
)

// A reading is a measured value and when it was last renewed, in one word so that
// both change in one step. The zero reading is "never measured".
type reading struct{ word atomic.Uint64 }

func packed(v float32, at uint32) uint64 { return uint64(math.Float32bits(v))<<32 | uint64(at) }

func unpacked(word uint64) (v float32, at uint32) {
	return math.Float32frombits(uint32(word >> 32)), uint32(word)
}

// renew replaces the reading by what f makes of it.
func (r *reading) renew(f func(word uint64) uint64) {
	for {
		old := r.word.Load()
		if r.word.CompareAndSwap(old, f(old)) {
			return
		}
	}
}

// estimates are what flows have reported of a backend. They lie beside each other, each on
// a cache line of its own, as Load does, but are this process's alone: the other data path
// knows no latency.
type estimates struct {
	smooth reading // smoothed time to the first byte, µs
	peak   reading // the same, but up at once
	merit  reading // 1/64 to 1, unset = 1

	_ [cacheLine - 3*8]byte
}

const (
	// fadeOver is how long an estimate of latency counts for anything without being
	// confirmed; so long a backend that was slow waits for its next flow.
	fadeOver = 30 * time.Second
	// peakDecay is the time constant of the peak average: Finagle's default.
	peakDecay = 10 * time.Second
	// smoothing is the part of a new latency in the plain average: eight flows
	// are most of it.
	smoothing = 1.0 / 8
	// typicalSmoothing is the same for the average over the whole pool.
	typicalSmoothing = 1.0 / 64
	// The merit of a backend, a factor of its weight, moves an eighth of the way
	// to 1 with each success and halves with each failure: one that fails in 1 %
	// keeps 0.96, in 10 % 0.7, in half of all flows 0.2. It never falls to
	// nothing, because only flows can find out that it is well again.
	meritRise = 1.0 / 8
	meritFall = 1.0 / 2
	meritMin  = 1.0 / 64
	// meritDoubt is how far failures that clients may have brought about lower it.
	meritDoubt = 1.0 / 2
)

// Report says how a flow without a lease fared, one of another data path: ok when the
// backend's first byte has come, latency after its connect began, or not ok when it failed
// before that in a way that is the backend's fault.
func (b *Backend) Report(ok bool, latency time.Duration) {
	if ok {
		b.succeeded(latency)
	} else {
		b.failed()
	}
}

// succeeded learns from a flow whose first byte came after latency.
func (b *Backend) succeeded(latency time.Duration) {
	c, now := b.earned, b.owner.clock.read()
	us := max(float32(latency)/float32(time.Microsecond), 1)
	c.smooth.renew(func(w uint64) uint64 {
		if w == 0 {
			return packed(us, now)
		}
		// From what it counted for: one that was slow long ago is not held to it.
		v := estimate(w, now, b.owner.typical.typicalLatency())
		return packed(v+(us-v)*smoothing, now)
	})
	c.peak.renew(func(w uint64) uint64 {
		v, at := unpacked(w)
		if us >= v {
			return packed(us, now)
		}
		keep := float32(math.Exp(-since(at, now) / float64(peakDecay/time.Millisecond)))
		return packed(us+(v-us)*keep, now)
	})
	b.owner.typical.renew(func(w uint64) uint64 {
		if w == 0 {
			return packed(us, now)
		}
		v, _ := unpacked(w)
		return packed(v+(us-v)*typicalSmoothing, now)
	})
	if c.merit.word.Load() != 0 {
		c.merit.renew(func(w uint64) uint64 {
			m := meritOf(w)
			return packed(m+(1-m)*meritRise, now)
		})
	}
	if b.load.Failing.Load() != 0 {
		renew(&b.load.Failing, now, penalty.halved)
	}
}

// failed learns from a flow that ended before its first byte.
func (b *Backend) failed() {
	now := b.owner.clock.read()
	renew(&b.load.Failing, now, func(p penalty) penalty { return p.plus(oneFlow, now) })
	b.earned.merit.renew(func(w uint64) uint64 { return packed(max(meritOf(w)*meritFall, meritMin), now) })
}

// doubted learns from a flow that failed as its client may have brought about. For a
// while the backend counts as loaded as the others are on average, so that one which
// resets everybody does not look idle. More would let strangers, whose nonsense a
// healthy backend throws away, send its clients elsewhere (case O-46).
func (b *Backend) doubted() {
	now := b.owner.clock.read()
	own := b.Active() - 1 // without this flow
	others := (b.owner.Active() - own - 1) / int64(max(b.owner.Eligible()-1, 1))
	if lack := others - own; lack > 0 {
		renew(&b.load.Failing, now, func(p penalty) penalty { return max(p, penaltyOf(uint64(lack)*oneFlow, now)) })
	}
	b.earned.merit.renew(func(w uint64) uint64 {
		m := meritOf(w)
		return packed(min(m, max(m*meritFall, meritDoubt)), now)
	})
}

// meritOf is a backend's merit, 1 until something fails.
func meritOf(word uint64) float32 {
	if word == 0 {
		return 1
	}
	v, _ := unpacked(word)
	return v
}

// estimate is a latency, in µs, as far as it is still believed: without new flows
// it fades, linearly, to half of what is typical of the pool. That is better than
// most, so a slow backend is tried again some day and a new one at all, and not
// so much better that either is flooded.
func estimate(word uint64, now uint32, typical float32) float32 {
	v, at := unpacked(word)
	const over = int32(fadeOver / time.Millisecond)
	age := int32(now - at)
	if word == 0 || age >= over {
		return typical / 2
	}
	return v + (typical/2-v)*(1/float32(over))*float32(max(age, 0))
}

// typicalLatency returns the average over the pool in µs, 1 before any is known.
func (r *reading) typicalLatency() float32 {
	if w := r.word.Load(); w != 0 {
		v, _ := unpacked(w)
		return v
	}
	return 1
}
