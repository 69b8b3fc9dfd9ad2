package health

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Case O-49: which probes are asked again. A blocked bubble cannot be stopped, so here
// the looks are made by hand; cmd/poise has the real stop.
func TestWakeful(t *testing.T) {
	const pace = 10 * time.Millisecond
	for what, tt := range map[string]struct {
		at    []time.Duration // of looks, the last of them the end's
		slept bool
	}{
		"answered at once":     {[]time.Duration{0}, false},
		"all the way":          {[]time.Duration{pace, 2 * pace, 3 * pace}, false},
		"a busy machine":       {[]time.Duration{2 * pace, 4 * pace}, false},
		"stopped at the start": {[]time.Duration{5 * pace, 6 * pace}, true},
		"stopped on the way":   {[]time.Duration{pace, 9 * pace, 10 * pace}, true},
		"stopped at the end":   {[]time.Duration{pace, 2 * pace, 9 * pace}, true},
	} {
		start := time.Now()
		w := &wakeful{pace: pace, last: start}
		for _, at := range tt.at {
			w.look(start.Add(at))
		}
		if w.slept != tt.slept {
			t.Errorf("%s: slept is %t", what, w.slept)
		}
	}
}

// Excuses come to an end, and a failure without one is counted at once.
func TestExcuses(t *testing.T) {
	var tg target
	bad := errors.New("late")
	var got []bool
	for range 2 * (maxExcuses + 1) {
		got = append(got, tg.excuse(bad, true))
	}
	for i, excused := range got {
		if excused != (i%(maxExcuses+1) != maxExcuses) {
			t.Errorf("failure %d: excused is %t", i, excused)
		}
	}
	if tg.excuse(bad, false) || tg.excuse(nil, true) || tg.excused != 0 {
		t.Error("a probe without a pause, or without a failure, is excused")
	}
}

type lateProber struct{}

func (lateProber) Probe(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// A probe that is late although this process ran is a failure as it always was, and
// leaves nothing behind.
func TestLateProbeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan bool, 1)
		m := NewMonitor(func(_ string, up bool, _ Status) { told <- up }, nil)
		m.prober = func(Target) Prober { return lateProber{} }
		m.Set([]Target{{Key: "k", Spec: Spec{Type: "tcp", Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}}})
		if up := <-told; up {
			t.Error("it is up")
		}
		m.Close()
	})
}
