package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// samples is what the clients of the demonstration have seen: totals, and the
// last moments for the live table.
type samples struct {
	mu       sync.Mutex // guards the following
	window   time.Duration
	recent   []loadgen.Sample // successes of the last window, by their end
	answered uint64
	failed   uint64
}

func (s *samples) observe(one loadgen.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.Err != nil {
		s.failed++
		return
	}
	s.answered++
	s.recent = append(s.recent, one)
	// Amortised: half of it goes when all of that half is old.
	if half := len(s.recent) / 2; half > 512 && one.End.Sub(s.recent[half].End) > s.window {
		s.recent = append(s.recent[:0], s.recent[half:]...)
	}
}

// view is one backend's, or everybody's, part of the last window.
type view struct {
	rate     float64 // answers a second
	p50, p99 time.Duration
}

// totals is the number of requests since the start.
type totals struct{ answered, failed uint64 }

// last returns the views by backend, of all together under "", over the last
// window or since the given time if that is shorter.
func (s *samples) last(now, since time.Time) (map[string]view, totals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := now.Add(-s.window)
	if since.After(from) {
		from = since
	}
	latencies := make(map[string][]time.Duration)
	for _, one := range s.recent {
		if one.End.After(from) {
			latencies[one.Backend] = append(latencies[one.Backend], one.Latency)
			latencies[""] = append(latencies[""], one.Latency)
		}
	}
	views := make(map[string]view, len(latencies))
	for name, l := range latencies {
		slices.Sort(l)
		views[name] = view{
			rate: float64(len(l)) / max(now.Sub(from).Seconds(), 1e-3),
			p50:  l[len(l)/2],
			p99:  l[len(l)*99/100],
		}
	}
	return views, totals{s.answered, s.failed}
}
