package health

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/poise-lb/poise/internal/keyed"
)

// target is one address under checks, with the goroutine that probes it. A target
// of type none has no goroutine until a Set gives it something to ask.
type target struct {
	// Set once.
	monitor *Monitor
	life    *keyed.Life
	poke    chan struct{} // capacity 1: want has changed

	mu     sync.Mutex // guards the following
	want   Target     // what Set said last
	draw   float64    // and where in the start window
	fresh  bool       // the goroutine has not adopted it yet
	urgent bool       // somebody wants to know at once
	alive  bool       // there is a goroutine
	abort  context.CancelFunc
	due    time.Time // when the probe that is under way has to be over; zero = there is none
	status Status

	// Owned by the goroutine; handed to the next one under mu.
	cur    Target // what is being probed
	prober Prober
	streak Streak // of answers, whatever the role in them
	other  bool   // the last answer about the role was the other one
	pace   pace

	excused int // failures in a row that were not counted
}

// newTarget starts checking.
func newTarget(m *Monitor, life *keyed.Life, want Target, draw float64) *target {
	up := want.Spec.InitiallyUp()
	t := &target{
		monitor: m, life: life, poke: make(chan struct{}, 1),
		status: Status{
			Up: up, Verdict: want.Spec.Type == "none",
			Since: time.Now(), FailuresBy: map[Reason]uint64{},
		},
		streak: NewStreak(up, want.Spec.Rise, want.Spec.Fall),
	}
	t.update(want, draw)
	return t
}

// update hands over a new spec. It does not wait for the goroutine. Updates of one
// target take turns.
func (t *target) update(want Target, draw float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.abort != nil && !want.sameQuestion(t.want) {
		t.abort() // its answer is of no use any more
	}
	t.want, t.draw, t.fresh = want, draw, true
	for _, r := range want.Spec.Reasons() {
		t.status.FailuresBy[r] += 0 // so that there is an entry
	}
	switch {
	case t.alive:
		select {
		case t.poke <- struct{}{}:
		default:
		}
	case want.Spec.Type != "none":
		t.alive = true
		t.pace.due = time.Time{} // whatever it was, it was another goroutine's
		t.life.Go(t.run)
	}
}

// hurry makes a probe due now, unless one is under way.
func (t *target) hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.alive || t.abort != nil {
		return
	}
	t.urgent = true
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// run is the life of a target's goroutine: probe when due, follow Set, end when
// the target is removed or has nothing to ask.
func (t *target) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for t.life.Err() == nil && t.adopt() {
		timer.Reset(time.Until(t.pace.due))
		select {
		case <-t.life.Done():
		case <-t.poke:
		case <-timer.C:
			if !t.postponed(time.Now()) {
				t.probe()
			}
		}
	}
}

// postponed gives a probe that comes late because this process did not run another time,
// if there is one left within an interval: as late as this one, all others are due now.
func (t *target) postponed(now time.Time) bool {
	if !t.pace.overdue(now, t.repeat()) {
		return false
	}
	t.pace.again(now, t.repeat(), t.monitor.rand())
	return t.pace.due.After(now)
}

// repeat is over how long probes are spread that a pause of this process has held up. For
// a backend that is down that is as short as for one that is up: the pause may be why.
func (t *target) repeat() time.Duration { return min(t.interval(), t.cur.Spec.Interval) }

// adopt follows what Set said last, if it is new, and reports whether there is
// something to probe; if not the goroutine ends.
func (t *target) adopt() bool {
	for {
		t.mu.Lock()
		if !t.fresh {
			if t.urgent {
				t.urgent = false
				t.pace.due = time.Now()
			}
			none := t.cur.Spec.Type == "none"
			if none {
				t.alive = false // from here on update starts another goroutine
			}
			t.mu.Unlock()
			return !none
		}
		t.fresh = false
		old, draw := t.cur, t.draw
		t.cur = t.want
		if !old.sameQuestion(t.cur) {
			t.status.CertExpires = time.Time{}
		}
		t.mu.Unlock()

		t.streak.Rise, t.streak.Fall = t.cur.Spec.Rise, t.cur.Spec.Fall
		now := time.Now()
		switch {
		case old.sameQuestion(t.cur):
			t.pace.revise(now, t.interval(), draw)
		case t.cur.Spec.Type == "none":
			t.trust(now)
		default:
			t.prober = t.monitor.prober(t.cur)
			t.streak.restart()
			t.pace.restart(now, t.interval(), draw)
		}
	}
}

// interval is the pause that the streak asks for.
func (t *target) interval() time.Duration {
	return t.cur.Spec.interval(t.streak.Up(), t.streak.turning())
}

// up reports whether the target gives the answers that are wanted, its role included.
func (t *target) up() bool { return t.streak.Up() && !t.other }

// trust makes the target up without a probe.
func (t *target) trust(now time.Time) {
	changed := !t.up()
	t.streak.force(true)
	t.other = false
	t.mu.Lock()
	t.status.Verdict = true
	t.status.Reason, t.status.Detail = "", ""
	if changed {
		t.status.Up, t.status.Standby, t.status.Since = true, false, now
	}
	t.mu.Unlock()
	if changed {
		t.tell(true)
	}
}

// tell tells of a change, unless the target is removed.
func (t *target) tell(up bool) {
	t.life.Tell(func() { t.monitor.onChange(t.cur.Key, up, t.snapshot()) })
}

// probe runs one probe and draws the conclusions.
func (t *target) probe() {
	start := time.Now()
	t.pace.started(start, t.monitor.rand())
	ctx, cancel := context.WithTimeout(withPorts(t.life, t.monitor.ports), t.cur.Spec.Timeout)
	defer cancel()
	t.mu.Lock()
	t.abort, t.due = cancel, start.Add(t.cur.Spec.Timeout)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.due = time.Time{}
		t.mu.Unlock()
	}()

	awake := newWakeful(t.cur.Spec.Timeout)
	res := timed(ctx, t.prober, t.up())
	again := t.excuse(res.err, awake.end())

	t.mu.Lock()
	t.abort = nil
	moot := again || errors.Is(ctx.Err(), context.Canceled) || !t.want.sameQuestion(t.cur)
	changed := false
	if !moot {
		changed = t.concludeLocked(res.err)
		st := &t.status
		st.At, st.Took = start, res.took
		if !res.certExpires.IsZero() {
			st.CertExpires = res.certExpires
		}
		st.Probes++
		if changed {
			st.Since = time.Now()
		}
	}
	t.mu.Unlock()
	if again {
		t.pace.again(time.Now(), t.repeat(), t.monitor.rand())
	} else {
		t.pace.next(t.interval())
	}
	if changed {
		t.tell(t.up())
	}
}

// maxExcuses is how many failures in a row may be this process's: on a machine that
// starves it all the time, backends that are down have to be found out too.
const maxExcuses = 3

// excuse reports whether a failure is not to be counted, and the probe to be made again,
// because this process did not run for a part of it.
func (t *target) excuse(err error, slept bool) bool {
	if err == nil || !slept || t.excused == maxExcuses {
		t.excused = 0
		return false
	}
	t.excused++
	return true
}

// concludeLocked moves the streak and the status by one probe's answer and
// reports whether the target went up, down, or on standby.
//
// A server of the other role is well, and so its answers count as successes. Its role
// is what it knows about itself, no symptom of which there should be several: one
// answer is believed, and a promotion is seen with the next probe.
func (t *target) concludeLocked(err error) (changed bool) {
	st := &t.status
	if errors.Is(err, ErrLocal) {
		st.Reason, st.Detail = "", err.Error()
		return false
	}
	var f *Failure
	if err != nil {
		f = asFailure(err)
	}
	if err == nil || f.Reason == ROLE {
		t.other = err != nil
	}
	up, _ := t.streak.Observe(err == nil || f.Reason == ROLE)
	standby := up && t.other
	up = t.up()
	changed = up != st.Up || standby != st.Standby
	st.Up, st.Standby = up, standby
	st.Verdict = st.Verdict || t.streak.settled || standby
	switch {
	case err != nil:
		if f.Reason != ROLE {
			st.FailuresBy[f.Reason]++
		}
		st.Reason, st.Detail = f.Reason, shorten(f.Err.Error())
	case st.Up:
		st.Reason, st.Detail = "", ""
	}
	return changed
}

// shorten keeps what a stranger may have sent to a length fit for a status line.
func shorten(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

func (t *target) snapshot() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.status
	st.FailuresBy = maps.Clone(st.FailuresBy)
	return st
}
