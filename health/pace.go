package health

import (
	"time"
)

const (
	// startWindow is the longest time over which the first probes of new targets
	// are spread: a start-up should know its backends soon, but many probes at
	// once would be a burst of sockets here and on a backend behind many names.
	startWindow = time.Second

	// jitterShare of the interval, up or down, is drawn for every pause, so that
	// the probes of many targets, or of both boxes of a pair, drift apart.
	jitterShare = 0.1

	// lateTimer is how late a timer may be on a busy machine.
	lateTimer = 100 * time.Millisecond

	// maxSpreads is how often in a row overdue probes get another interval.
	maxSpreads = 3

	// minInterval keeps a Spec without an interval from spinning.
	minInterval = time.Millisecond
)

// pace says when a target's next probe is due. It is pure: now and the random
// draws come in.
type pace struct {
	last    time.Time // start of the last probe; zero before the first
	due     time.Time
	spread  time.Time // when probes that are due again are all under way; zero = none is
	spreads int       // how many such times there have been in a row
	factor  float64   // of the pause after last, 1 ± jitterShare; drawn once, so that revising it often cannot stretch it
}

// begin makes a probe due within the start window of interval; draw in [0, 1)
// says where in it. A probe that was due earlier stays due.
func (p *pace) begin(now time.Time, interval time.Duration, draw float64) {
	due := now.Add(time.Duration(draw * float64(min(interval, startWindow))))
	if p.due.IsZero() || due.Before(p.due) {
		p.due = due
	}
}

// started notes that a probe begins now; draw in [0, 1) sets the jitter of the
// pause that follows.
func (p *pace) started(now time.Time, draw float64) {
	p.last, p.factor = now, 1+jitterShare*(2*draw-1)
}

// next makes the probe due one interval after the start of the last one, which counts:
// start to start, so that slow answers do not lower the rate.
func (p *pace) next(interval time.Duration) {
	p.due, p.spread, p.spreads = p.after(interval), time.Time{}, 0
}

// overdue reports whether a probe comes so late that this process cannot have run for a
// while, or was kept from it: later than the jitter of its interval makes probes of many
// targets drift apart.
func (p *pace) overdue(now time.Time, interval time.Duration) bool {
	return now.Sub(p.due) > max(time.Duration(jitterShare*float64(interval)), lateTimer)
}

// again makes the probe due within one interval, for one that a pause of this process has
// spoilt or held up. A pause concerns many targets together, which must not all be asked
// in the same moment. What is due again within that interval has what is left of it; a
// pause that outlasts it begins another one, maxSpreads in a row, so that where this
// process is held up all the time probes are made all the same. draw in [0, 1) says where
// in what is left.
func (p *pace) again(now time.Time, interval time.Duration, draw float64) {
	if p.spread.IsZero() || now.After(p.spread) && p.spreads < maxSpreads {
		p.spread = now.Add(max(interval, minInterval))
		p.spreads++
	}
	p.due = now.Add(time.Duration(draw * float64(max(p.spread.Sub(now), 0))))
}

// revise follows a changed interval: it counts from the last probe, so that a
// shorter one takes effect at once. What is overdue by it comes within the start
// window, as a reload changes many targets together.
func (p *pace) revise(now time.Time, interval time.Duration, draw float64) {
	if p.last.IsZero() {
		p.begin(now, interval, draw)
		return
	}
	if due := p.after(interval); due.After(now) {
		p.due = due
		return
	}
	p.begin(now, interval, draw)
}

// restart makes a probe due soon for a target whose check has changed, but no
// sooner than one interval after the last one: reloading every second must not
// probe every second.
func (p *pace) restart(now time.Time, interval time.Duration, draw float64) {
	p.begin(now, interval, draw)
	if floor := p.after(interval); !p.last.IsZero() && p.due.Before(floor) {
		p.due = floor
	}
}

func (p *pace) after(interval time.Duration) time.Time {
	return p.last.Add(time.Duration(p.factor * float64(max(interval, minInterval))))
}
