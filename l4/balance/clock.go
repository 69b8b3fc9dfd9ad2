package balance

import (
	"sync/atomic"
	"time"
)

// clock is the time measurements are stamped with: milliseconds since the pool
// was made, or those of CLOCK_MONOTONIC if another data path shares them. On some machines reading the system's clock costs more than choosing
// a backend, so choosing uses the time of the last reading; every report of a
// flow takes a new one, and so does, by chance, one choice in a thousand.
type clock struct {
	start time.Time
	from  uint32 // what it showed at start
	last  atomic.Uint32
}

// read returns the time now.
func (k *clock) read() uint32 {
	now := k.from + uint32(time.Since(k.start)/time.Millisecond)
	k.last.Store(now)
	return now
}

// coarse returns the time of the last reading.
func (k *clock) coarse() uint32 { return k.last.Load() }

// sometimes takes a reading if the low bits of r, which are random or count, are
// all zero.
func (k *clock) sometimes(r uint64) {
	if r&1023 == 0 {
		k.read()
	}
}

// since returns the milliseconds from at to now. It may be called with times out
// of order, and 49 days apart, when the clock has wrapped: either counts as none.
func since(at, now uint32) float64 { return float64(max(int32(now-at), 0)) }
