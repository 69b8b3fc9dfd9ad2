package l4_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/poise-lb/poise/l4"
)

// TestWindow: whatever is observed and whenever, a window has what was observed since
// the sixth tick before the last one, neither more nor less.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h l4.Histogram
		var w l4.Window
		marks := make([]l4.HistogramCounts, l4.WindowTicks+1) // at the ticks, the oldest first
		check := func() {
			now := h.Counts()
			want, got := now.Sub(&marks[0]), w.Counts(&now)
			if got.Count != want.Count || got.Buckets != want.Buckets {
				t.Fatalf("%d observations, want %d", got.Count, want.Count)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"observe": func(t *rapid.T) {
				h.Observe(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "took")))
			},
			"tick": func(*rapid.T) {
				now := h.Counts()
				w.Tick(&now)
				marks = append(marks[1:], now)
			},
			"": func(*rapid.T) { check() },
		})
	})
}

// TestWindowOfAnotherHistogram: one that has observed less has taken the place of
// the first, and nothing of that is left.
func TestWindowOfAnotherHistogram(t *testing.T) {
	var w l4.Window
	var first, second l4.Histogram
	for range 10 {
		first.Observe(time.Hour)
	}
	now := first.Counts()
	w.Tick(&now)
	second.Observe(time.Millisecond)
	now = second.Counts()
	if c := w.Counts(&now); c.Count != 1 || c.Quantile(0.99) > 2*time.Millisecond {
		t.Errorf("%d, %v", c.Count, c.Quantile(0.99))
	}
}

func BenchmarkWindowTick(b *testing.B) {
	var w l4.Window
	var h l4.Histogram
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Observe(time.Duration(i) * time.Microsecond)
		now := h.Counts()
		w.Tick(&now)
	}
}
