package health

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// However often a target is revised or restarted: it is probed no faster than the
// shortest interval in force allows, and no revision postpones the first probe.
func TestPaceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Float64Range(0, 0.999)
		interval := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(10, 10_000).Draw(t, "ms")) * time.Millisecond
		})
		now, gap := epoch, interval.Draw(t, "interval")
		var p pace
		p.begin(now, gap, draw.Draw(t, "draw"))
		if p.due.Before(now) || p.due.After(now.Add(min(gap, startWindow))) {
			t.Fatalf("first probe after %v of an interval of %v", p.due.Sub(now), gap)
		}
		shortest := gap // since the last probe
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			due := p.due
			switch rapid.SampledFrom([]string{"probe", "probe", "revise", "restart"}).Draw(t, "step") {
			case "probe":
				if due.After(now) {
					now = due
				}
				floor := time.Duration((1 - jitterShare) * float64(shortest))
				if !p.last.IsZero() && now.Sub(p.last) < floor-time.Microsecond {
					t.Fatalf("probes %v apart with intervals of at least %v", now.Sub(p.last), shortest)
				}
				p.started(now, draw.Draw(t, "draw"))
				now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "took")) * time.Millisecond)
				p.next(gap)
				shortest = gap
			case "revise":
				gap = interval.Draw(t, "interval")
				shortest = min(shortest, gap)
				p.revise(now, gap, draw.Draw(t, "draw"))
				if p.last.IsZero() && p.due.After(due) {
					t.Fatal("the first probe was postponed")
				}
				if longest := max(p.after(gap).Sub(now), min(gap, startWindow)); p.due.Sub(now) > longest {
					t.Fatalf("due in %v, want at most %v", p.due.Sub(now), longest)
				}
			case "restart":
				p.restart(now, gap, draw.Draw(t, "draw"))
				if p.due.After(due) && p.due.After(p.after(gap)) {
					t.Fatal("a restart postponed the probe")
				}
			}
			// Up to the next probe, so that a revision meets every phase.
			if room := p.due.Sub(now); room > 0 {
				now = now.Add(time.Duration(draw.Draw(t, "wait") * float64(room)))
			}
		}
	})
}

func TestPaceRevisingOftenDoesNotStarve(t *testing.T) {
	var p pace
	p.started(epoch, 0.5)
	p.next(time.Second)
	now := epoch
	for i := range 100 { // a reload every 10 ms that flips the interval
		now = now.Add(10 * time.Millisecond)
		if !p.due.After(now) {
			return
		}
		p.revise(now, []time.Duration{time.Second, 800 * time.Millisecond}[i%2], 0.9)
	}
	t.Errorf("not due after 1 s, but in %v", p.due.Sub(now))
}

func TestPaceWithoutInterval(t *testing.T) {
	var p pace
	p.started(epoch, 0)
	p.next(0)
	if !p.due.After(epoch) {
		t.Error("would spin")
	}
}

// Case O-49: probes that a pause has spoilt are made again over one interval, not all at
// once.
func TestPaceAgainIsSpread(t *testing.T) {
	now := time.Now()
	for draw, want := range map[float64]time.Duration{0: 0, 0.25: 500 * time.Millisecond, 0.75: 1500 * time.Millisecond} {
		var p pace
		p.started(now.Add(-time.Hour), 0.5)
		p.next(2 * time.Second)
		if p.again(now, 2*time.Second, draw); p.due.Sub(now) != want {
			t.Errorf("draw %v: due in %v, want %v", draw, p.due.Sub(now), want)
		}
	}
}

// Whatever pauses follow each other: a probe that is made again waits for one interval
// after the pause, a few times, and one that counts begins a new account.
func TestPaceAgainIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Float64Range(0, 0.999)
		interval := time.Duration(rapid.IntRange(10, 10_000).Draw(t, "ms")) * time.Millisecond
		now := epoch
		var p pace
		for range rapid.IntRange(1, 3).Draw(t, "accounts") {
			p.started(now, draw.Draw(t, "jitter"))
			p.next(interval)
			now = p.due.Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, "pause")) * time.Millisecond)
			first, spreads := now, 0
			for range rapid.IntRange(1, 20).Draw(t, "pauses") {
				if now.After(first.Add(interval)) && spreads < maxSpreads-1 {
					first = now
					spreads++
				}
				p.again(now, interval, draw.Draw(t, "draw"))
				if p.due.Before(now) || p.due.After(now) && p.due.After(first.Add(interval)) {
					t.Fatalf("%v after the first pause it is due in %v, of an interval of %v", now.Sub(first), p.due.Sub(now), interval)
				}
				now = p.due.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "late")) * time.Millisecond)
			}
		}
	})
}

func TestPaceOverdue(t *testing.T) {
	for _, c := range []struct {
		late, interval time.Duration
		want           bool
	}{
		{0, 2 * time.Second, false},
		{150 * time.Millisecond, 2 * time.Second, false},
		{250 * time.Millisecond, 2 * time.Second, true},
		{80 * time.Millisecond, 50 * time.Millisecond, false},
		{120 * time.Millisecond, 50 * time.Millisecond, true},
	} {
		p := pace{due: epoch}
		if got := p.overdue(epoch.Add(c.late), c.interval); got != c.want {
			t.Errorf("%v late, every %v: %v", c.late, c.interval, got)
		}
	}
}

// A second pause, before all that the first has held up are asked, is no burst either.
func TestPaceSpreadsAfterEachPause(t *testing.T) {
	const interval, targets = 2 * time.Second, 1000
	now, ends, burst := epoch, epoch.Add(10*time.Second), 0
	for i := range targets {
		var p pace
		p.started(now.Add(-interval), 0.5)
		p.next(interval)
		draw := float64(i) / targets
		if p.again(now, interval, draw); p.due.Sub(now) < interval/4 {
			continue // asked before the second pause begins
		}
		p.again(ends, interval, draw)
		if p.due.Sub(ends) < interval/10 {
			burst++
		}
	}
	if burst > targets/10 {
		t.Errorf("%d of %d are asked within a tenth of the interval", burst, targets)
	}
}
