package l4

import (
	"math"
	"sync/atomic"
	"time"
)

// A Histogram counts durations in exponential buckets, eight to a doubling
// (Prometheus native histogram schema 3: about 9 % apart), from 1 µs to over an
// hour. The zero value is ready; Observe is wait-free and allocates nothing.
type Histogram struct {
	sum     atomic.Uint64 // µs: ns would overflow within weeks of 10 000 open sessions
	buckets [HistogramBuckets]atomic.Uint64
}

// Bucket i holds durations in (bound(i-1), bound(i)] seconds where
// bound(i) = 2^((i+HistogramOffset)/8); bucket 0 also takes all that is
// smaller and the last one all that is larger.
const (
	HistogramSchema  = 3
	HistogramOffset  = -160 // 2^-20 s, just under 1 µs
	HistogramBuckets = 256  // up to 2^12 s less one step, 1.04 h
)

// Observe counts d; a negative d counts as zero.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.sum.Add(uint64(d.Round(time.Microsecond) / time.Microsecond))
	h.buckets[bucketOf(d)].Add(1)
}

// The bounds within one doubling, as fractions in [0.5, 1) of math.Frexp.
var fractions = func() (f [8]float64) {
	for i := range f {
		f[i] = math.Exp2(float64(i)/8) / 2
	}
	return f
}()

func bucketOf(d time.Duration) int {
	frac, exp := math.Frexp(d.Seconds())
	if frac == 0 {
		return 0
	}
	i := 0 // the first bound that is not below frac
	for i < len(fractions) && fractions[i] < frac {
		i++
	}
	return min(max((exp-1)*8+i-HistogramOffset, 0), HistogramBuckets-1)
}

// HistogramBound is the upper bound of bucket i, in seconds.
func HistogramBound(i int) float64 { return math.Exp2(float64(i+HistogramOffset) / 8) }

// HistogramCounts is a copy of a Histogram at one moment.
type HistogramCounts struct {
	Count   uint64
	Sum     float64 // seconds, each observation rounded to 1 µs
	Buckets [HistogramBuckets]uint64
}

// Counts copies the histogram. Observations made meanwhile may be in the
// buckets and not yet in the sum; Count always equals the sum of the buckets.
func (h *Histogram) Counts() (c HistogramCounts) {
	for i := range h.buckets {
		n := h.buckets[i].Load()
		c.Buckets[i] = n
		c.Count += n
	}
	c.Sum = float64(h.sum.Load()) / 1e6
	return c
}

// Quantile returns the upper bound of the bucket that holds quantile q, or 0 when
// nothing was observed. A q outside 0..1 counts as the nearer end.
func (c *HistogramCounts) Quantile(q float64) time.Duration {
	if c.Count == 0 {
		return 0
	}
	// The last factor is a few units in the last place: 0.07 * 100 is a little
	// more than 7 in binary and must not become rank 8.
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(c.Count) * (1 - 1e-15)))
	rank = min(max(rank, 1), c.Count)
	var seen uint64
	for i, n := range c.Buckets {
		if seen += n; seen >= rank {
			return time.Duration(HistogramBound(i) * float64(time.Second))
		}
	}
	return 0
}

// Sub returns what was observed between the earlier copy o and c.
func (c HistogramCounts) Sub(o *HistogramCounts) HistogramCounts {
	c.Count -= o.Count
	c.Sum -= o.Sum
	for i := range c.Buckets {
		c.Buckets[i] -= o.Buckets[i]
	}
	return c
}
