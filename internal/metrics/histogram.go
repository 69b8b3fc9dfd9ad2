package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/poise-lb/poise/l4"
)

// The classic buckets end where buckets of l4.Histogram end, so that their
// counts are exact; those lie at powers of 2^(1/8), hence the crooked seconds.
var (
	connectBounds = powersOfTwo(-13, 3, 1)  // 122 µs, 244 µs, ... 4 s, 8 s
	sessionBounds = powersOfTwo(-10, 10, 2) // 1 ms, 4 ms, ... 256 s, 17 min
)

// powersOfTwo lists the l4 buckets that end at 2^from, 2^(from+step), ... 2^to
// seconds. None of them is the last, which also holds all that is longer.
func powersOfTwo(from, to, step int) (buckets []int) {
	for e := from; e <= to; e += step {
		buckets = append(buckets, e<<l4.HistogramSchema-l4.HistogramOffset)
	}
	return buckets
}

// durations is what one or several l4.Histograms have counted. The sum is an
// integer: floating-point sums depend on their order, and one that came out an
// ulp smaller than before would be taken for a counter that started anew.
type durations struct {
	micros  uint64
	count   uint64
	buckets [l4.HistogramBuckets]uint64
}

func (d *durations) read(h *l4.Histogram) { d.set(h.Counts()) }

func (d *durations) set(c l4.HistogramCounts) {
	d.micros, d.count, d.buckets = uint64(math.Round(c.Sum*1e6)), c.Count, c.Buckets
}

func (d *durations) add(o *durations) {
	d.micros += o.micros
	d.count += o.count
	for i, n := range o.buckets {
		d.buckets[i] += n
	}
}

// A histogram is one series of a histogram family, classic and native in one:
// the text formats carry the classic buckets, the protobuf format both.
type histogram struct {
	*family
	labels []string
	counts *durations
}

// Desc is part of prometheus.Metric.
func (h *histogram) Desc() *prometheus.Desc { return h.family.Desc }

// Write is part of prometheus.Metric.
func (h *histogram) Write(m *dto.Metric) error {
	m.Label = prometheus.MakeLabelPairs(h.family.Desc, h.labels)
	m.Histogram = &dto.Histogram{
		SampleCount: new(h.counts.count),
		SampleSum:   new(float64(h.counts.micros) / 1e6),
		Bucket:      h.classic(),

		// Bucket 0 holds everything from zero to its bound, which is what a native
		// histogram calls its zero bucket.
		Schema:        new(int32(l4.HistogramSchema)),
		ZeroThreshold: new(l4.HistogramBound(0)),
		ZeroCount:     new(h.counts.buckets[0]),
	}
	m.Histogram.PositiveSpan, m.Histogram.PositiveDelta = h.native()
	return nil
}

// classic returns cumulative counts; the one of +Inf is the sample count.
func (h *histogram) classic() []*dto.Bucket {
	list := make([]*dto.Bucket, 0, len(h.bounds))
	var seen uint64
	next := 0
	for _, bound := range h.bounds {
		for ; next <= bound; next++ {
			seen += h.counts.buckets[next]
		}
		list = append(list, &dto.Bucket{CumulativeCount: new(seen), UpperBound: new(l4.HistogramBound(bound))})
	}
	return list
}

// native returns the buckets from 1 on that are not empty, as runs of adjacent
// ones, each count as the difference from the one before. The bucket that ends at
// 2^(i/8) has index i in schema 3. The last bucket also holds what is longer than
// its bound, over an hour.
func (h *histogram) native() (spans []*dto.BucketSpan, deltas []int64) {
	var before uint64
	end := 0 // native index after the last run
	for i := 1; i < l4.HistogramBuckets; i++ {
		n := h.counts.buckets[i]
		if n == 0 {
			continue
		}
		index := i + l4.HistogramOffset
		if len(spans) == 0 || index != end {
			spans = append(spans, &dto.BucketSpan{Offset: new(int32(index - end)), Length: new(uint32(0))})
		}
		*spans[len(spans)-1].Length++
		end = index + 1
		deltas = append(deltas, int64(n)-int64(before))
		before = n
	}
	return spans, deltas
}
