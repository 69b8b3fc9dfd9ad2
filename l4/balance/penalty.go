package balance

import (
	"math"
	"sync/atomic"
	"time"
)

// A penalty is how many flows failed of late, and when that was worked out: in the upper
// half of the word flows in 1/65536, in the lower half milliseconds of the pool's clock.
// The zero penalty is none. It is worked out in integers, because a program in a kernel has
// no others and must come to the same burden.
type penalty uint64

const (
	// penaltyHalf is how long a failed flow counts as an open one, on average: so
	// a backend that fails at once looks as busy as one that holds each flow for
	// some seconds, and not idle.
	penaltyHalf = 10 * time.Second
	// penaltyStep is how often a penalty falls: sixteen times in penaltyHalf.
	penaltyStep = uint32(penaltyHalf/time.Millisecond) / 16
	// oneFlow is a flow that failed just now.
	oneFlow = 1 << 16
)

// penaltyFall is what is left of 1 after so many steps, in 1/65536.
var penaltyFall = [16]uint64{
	65536, 62757, 60097, 57549, 55109, 52773, 50535, 48393,
	46341, 44376, 42495, 40693, 38968, 37316, 35734, 34219,
}

func penaltyOf(v uint64, at uint32) penalty {
	if v = min(v, math.MaxUint32); v == 0 {
		return 0
	}
	return penalty(v<<32 | uint64(at))
}

// at is what the penalty has faded to. It keeps the time of the last whole step, or a
// backend that fails more often than there are steps would never be forgiven anything.
func (p penalty) at(now uint32) penalty {
	v, at := uint64(p>>32), uint32(p)
	if p == 0 || int32(now-at) <= 0 { // readings of the clock may come out of order
		return p
	}
	steps := (now - at) / penaltyStep
	return penaltyOf(v*penaltyFall[steps%16]>>16>>(steps/16), at+steps*penaltyStep)
}

// flows is the penalty in whole flows, rounded.
func (p penalty) flows() int64 { return int64((uint64(p>>32) + oneFlow/2) / oneFlow) }

// plus is the penalty and v more.
func (p penalty) plus(v uint64, now uint32) penalty {
	if p == 0 {
		return penaltyOf(v, now)
	}
	return penaltyOf(uint64(p>>32)+v, uint32(p))
}

// halved is half of the penalty, and none if that is less than half a flow.
func (p penalty) halved() penalty {
	if v := uint64(p>>32) / 2; v >= oneFlow/2 {
		return penaltyOf(v, uint32(p))
	}
	return 0
}

// renew replaces the penalty in a word by what f makes of what it has faded to.
func renew(word *atomic.Uint64, now uint32, f func(penalty) penalty) {
	for {
		old := word.Load()
		if word.CompareAndSwap(old, uint64(f(penalty(old).at(now)))) {
			return
		}
	}
}
