package l4_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
)

// bucket returns the one bucket that d falls into.
func bucket(t *testing.T, d time.Duration) int {
	t.Helper()
	var h l4.Histogram
	h.Observe(d)
	c := h.Counts()
	if c.Count != 1 {
		t.Fatalf("%v: count %d", d, c.Count)
	}
	for i, n := range c.Buckets {
		if n != 0 {
			return i
		}
	}
	t.Fatalf("%v is in no bucket", d)
	return 0
}

func TestHistogramEdges(t *testing.T) {
	last := l4.HistogramBuckets - 1
	for _, c := range []struct {
		d    time.Duration
		want int
	}{
		{math.MinInt64, 0},
		{-1, 0},
		{0, 0},
		{1, 0},
		{953 * time.Nanosecond, 0}, // 2^-20 s is 953.67 ns
		{954 * time.Nanosecond, 1},
		{time.Second, -l4.HistogramOffset}, // a bound belongs to the bucket below it
		{time.Second + 1, -l4.HistogramOffset + 1},
		{2 * time.Second, -l4.HistogramOffset + 8},
		{time.Second / 2, -l4.HistogramOffset - 8},
		{3756 * time.Second, last},
		{5000 * time.Second, last},
		{math.MaxInt64, last},
	} {
		if got := bucket(t, c.d); got != c.want {
			t.Errorf("%v: bucket %d, want %d", c.d, got, c.want)
		}
	}
}

// Just below and just above each bound, in whole nanoseconds.
func TestHistogramBounds(t *testing.T) {
	for i := range l4.HistogramBuckets - 1 {
		bound := l4.HistogramBound(i) * float64(time.Second)
		if below := time.Duration(math.Floor(bound)); bucket(t, below) != i {
			t.Errorf("%v: bucket %d, want %d (bound %v ns)", below, bucket(t, below), i, bound)
		}
		if above := time.Duration(math.Floor(bound)) + 1; i+1 < l4.HistogramBuckets && bucket(t, above) != i+1 {
			// Bounds closer than 1 ns to each other do not occur: at 1 µs
			// they are 90 ns apart.
			t.Errorf("%v: bucket %d, want %d (bound %v ns)", above, bucket(t, above), i+1, bound)
		}
		if ratio := l4.HistogramBound(i+1) / l4.HistogramBound(i); math.Abs(ratio-math.Exp2(math.Exp2(-l4.HistogramSchema))) > 1e-12 {
			t.Errorf("bound %d to %d: ratio %v is not of the schema", i, i+1, ratio)
		}
	}
	if top := l4.HistogramBound(l4.HistogramBuckets - 1); top < 3600 {
		t.Errorf("the last bound is %v s, under an hour", top)
	}
}

func TestHistogramQuantile(t *testing.T) {
	var h l4.Histogram
	none := h.Counts()
	if q := none.Quantile(0.5); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
	// One observation in each of 100 buckets, so that rank and bucket agree.
	for i := range 100 {
		h.Observe(time.Duration(l4.HistogramBound(i+8) * float64(time.Second)))
	}
	c := h.Counts()
	for _, q := range []struct {
		q    float64
		rank int
	}{
		{-1, 1},
		{0, 1},
		{0.001, 1},
		{0.01, 1},
		{0.07, 7}, // 0.07*100 is more than 7 in binary
		{0.5, 50},
		{0.501, 51},
		{0.95, 95},
		{0.99, 99},
		{1, 100},
		{2, 100},
	} {
		want := time.Duration(l4.HistogramBound(q.rank+7) * float64(time.Second))
		if got := c.Quantile(q.q); got != want {
			t.Errorf("quantile %v: %v, want %v", q.q, got, want)
		}
	}
}

func TestHistogramSum(t *testing.T) {
	var h l4.Histogram
	for _, d := range []time.Duration{1500 * time.Millisecond, 400 * time.Nanosecond, 600 * time.Nanosecond, -time.Hour} {
		h.Observe(d)
	}
	if c := h.Counts(); math.Abs(c.Sum-1.500001) > 1e-9 {
		t.Errorf("sum %v", c.Sum)
	}
}

// A busy balancer adds up 300 years of connection time in weeks; the sum is a
// counter and must not wrap.
func TestHistogramSumOfCenturies(t *testing.T) {
	var h l4.Histogram
	for range 10 {
		h.Observe(100 * 365 * 24 * time.Hour)
	}
	const want = 1000 * 365 * 24 * 3600.0
	if c := h.Counts(); c.Sum != want {
		t.Errorf("sum %v s, want %v", c.Sum, want)
	}
}

func TestHistogramSub(t *testing.T) {
	var h l4.Histogram
	h.Observe(time.Millisecond)
	before := h.Counts()
	h.Observe(time.Second)
	h.Observe(2 * time.Second)
	after := h.Counts()
	diff := after.Sub(&before)
	if diff.Count != 2 || math.Abs(diff.Sum-3) > 1e-9 || diff.Quantile(0) != time.Second || diff.Quantile(1) != 2*time.Second {
		t.Errorf("count %d, sum %v, from %v to %v", diff.Count, diff.Sum, diff.Quantile(0), diff.Quantile(1))
	}
	if after.Count != 3 {
		t.Error("Sub changed its receiver")
	}
}

func TestHistogramConcurrent(t *testing.T) {
	var h l4.Histogram
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 1000 {
				h.Observe(time.Duration(i+1) * time.Millisecond)
			}
		})
	}
	for range 100 {
		c := h.Counts()
		sum := uint64(0)
		for _, n := range c.Buckets {
			sum += n
		}
		if c.Count != sum {
			t.Fatalf("count %d, buckets %d", c.Count, sum)
		}
	}
	all.Wait()
	if c := h.Counts(); c.Count != 4000 || math.Abs(c.Sum-10) > 1e-9 {
		t.Errorf("count %d, sum %v", c.Count, c.Sum)
	}
}

func TestHistogramAllocatesNothing(t *testing.T) {
	var h l4.Histogram
	if n := testing.AllocsPerRun(100, func() { h.Observe(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHistogramObserve(b *testing.B) {
	var h l4.Histogram
	for b.Loop() {
		h.Observe(123 * time.Microsecond)
	}
}
