package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// recently is how far back the percentiles of the status look, and up to a tick more.
// Those of the whole life of a process would not move any more after some days.
const recently = time.Minute

// recent keeps a window of every histogram that the status has percentiles of. The
// data path has no part in it: histograms are read, every ten seconds, and windows of
// those that have observed something take 2 KiB each.
type recent struct {
	mu      sync.Mutex // guards the following
	windows map[any]*l4.Window
}

// of returns what a histogram has observed of late; key is whose it is, and now its
// present state.
func (r *recent) of(key any, now l4.HistogramCounts) l4.HistogramCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.windows[key]; w != nil {
		return w.Counts(&now)
	}
	return now // all of it since the last tick
}

// strategyKey is whose the histogram of a strategy is.
type strategyKey struct {
	pool *balance.Pool
	name string
}

// tick ends an interval for all histograms of these pools. The windows of others go.
func (r *recent) tick(pools []*balance.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := map[any]*l4.Window{}
	one := func(key any, now l4.HistogramCounts) {
		w := r.windows[key]
		switch {
		case w != nil:
		case now.Count == 0:
			return
		default:
			w = new(l4.Window)
		}
		w.Tick(&now)
		kept[key] = w
	}
	for _, p := range pools {
		for _, list := range [][]*balance.Backend{p.Backends(), p.Leaving()} {
			for _, b := range list {
				for _, h := range []*l4.Histogram{&b.Stats.ConnectTime, &b.Stats.FirstByteTime} {
					one(h, h.Counts())
				}
			}
		}
		for _, s := range p.Snapshot().Strategies {
			one(strategyKey{p, s.Name}, s.Latency)
		}
	}
	r.windows = kept
}

// keepRecent ticks until ctx ends.
func (d *Daemon) keepRecent(ctx context.Context) {
	t := time.NewTicker(recently / l4.WindowTicks)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			d.recent.tick(d.control.Set().All())
		}
	}
}
