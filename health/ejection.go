package health

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/internal/plural"
)

// Circuit is how far a member is out of rotation by what real traffic met with,
// in the words of a circuit breaker (M. Nygard, Release It!, 2007).
type Circuit uint8

// The states of a Circuit.
const (
	Closed   Circuit = iota // in rotation
	Open                    // ejected: no connections
	HalfOpen                // the ejection is over: so many trials, and no more
)

// String returns "closed", "open" or "half-open".
func (c Circuit) String() string { return [...]string{"closed", "open", "half-open"}[c] }

// Cause says in one word why a Circuit has changed. The list is closed.
type Cause string

// The causes.
const (
	CauseFailures    Cause = "failures"     // opened by as many failures in a row as it takes
	CauseTimeOver    Cause = "time_over"    // half-open, as its time is up
	CauseRenewed     Cause = "renewed"      // still half-open: the trials were used up without a result
	CauseTrialFailed Cause = "trial_failed" // opened again
	CauseTrialPassed Cause = "trial_passed" // closed
	CauseCheckPassed Cause = "check_passed" // closed, because an active check that failed has passed again
	CauseNotAllowed  Cause = "not_allowed"  // closed, because a new configuration does not allow it
	CauseForgotten   Cause = "forgotten"    // closed, because it is no member any more
)

// Change is one step of a member's Circuit.
type Change struct {
	Key    string
	State  Circuit
	Trials int // when half-open: connections to let through from now on
	Cause  Cause
	Why    string // for people
}

// trialPatience is how long a trial may go without a verdict. One that was never
// made, or is lost, is then given again; one that has been established for so long
// counts as passed: there are protocols in which a server says nothing for hours.
const trialPatience = 10 * time.Second

// What has become of the trials of a half-open member.
const (
	noTrial      int32 = iota // not half-open
	trialPending              // nothing yet
	trialReached              // connected, no verdict yet
	trialDoubted              // failed, as its client may have brought about
	trialPassed
	trialFailed
)

// member is one backend as the outlier detector sees it.
type member struct {
	// Set once.
	key     string
	failing *atomic.Int64 // of the pool's members: runs, and those that are half-open

	run    series       // failures in a row
	silent atomic.Bool  // some of them came after the connect
	doubts doubts       // failures that clients may have brought about, since the last answer
	trial  atomic.Int32 // begun and ended by the state machine, judged by whoever reports

	// The state machine's.
	idle     bool // it can take no traffic, ejected or not
	state    Circuit
	until    time.Time // Open: its end. HalfOpen: the end of patience.
	reached  bool      // patience is with an established trial
	returned time.Time // closed since
	lasted   time.Duration
	repeats  int // decides the next ejection's length
	why      string
	total    uint64
}

// fail counts one failure; see series.add.
func (m *member) fail() int64 { return m.run.add(m.failing) }

// end ends what has been counted: with is 0 or retired.
func (m *member) end(with int64) {
	m.silent.Store(false)
	m.run.end(m.failing, with)
	m.doubts.run.end(m.failing, with)
}

// onTrial reports whether the member is half-open, in which case nothing is
// counted.
func (m *member) onTrial() bool { return m.trial.Load() != noTrial }

// judge notes what a trial has come to, and reports whether that is news.
func (m *member) judge(result int32) bool {
	return m.trial.CompareAndSwap(trialPending, result) ||
		result != trialReached && m.trial.CompareAndSwap(trialReached, result)
}

// ejections is the pure state machine of one pool: reports have been counted in
// the members, now comes in, changes go out.
type ejections struct {
	spec    PassiveSpec
	members []*member     // in the pool's order
	failing *atomic.Int64 // see member
	serving int           // how many are not idle
	out     int           // and how many of those are not closed
}

// update changes the members and the spec; what can no longer be ejected returns.
func (p *ejections) update(now time.Time, spec PassiveSpec, keys []string) (changes []Change) {
	p.spec = spec
	old, known, kept := p.members, p.index(), make(map[string]bool, len(keys))
	p.members = make([]*member, 0, len(keys))
	for _, key := range keys {
		if kept[key] {
			continue
		}
		kept[key] = true
		m := known[key]
		if m == nil {
			m = &member{key: key, failing: p.failing}
		}
		p.members = append(p.members, m)
	}
	for _, m := range old {
		if kept[m.key] {
			continue
		}
		if m.state != Closed {
			changes = append(changes, p.close(m, now, CauseForgotten, "removed"))
		}
		m.end(retired)
	}
	changes = append(changes, p.restrain(now)...)
	if spec.Failures <= 0 {
		for _, m := range p.members {
			m.end(0)
		}
	}
	return changes
}

// setIdle notes whether a member can take traffic, which decides how many of the
// others may be out. What failed while it could not says nothing about the time after.
func (p *ejections) setIdle(m *member, now time.Time, idle bool) (changes []Change) {
	if m.idle == idle {
		return nil
	}
	m.idle = idle
	if m.state == Closed {
		m.end(0)
	}
	return p.restrain(now)
}

// counts reports whether a member counts in what may be out. An idle one does not,
// unless nothing may be out at all.
func (p *ejections) counts(m *member) bool { return !m.idle || p.spec.Failures <= 0 }

// restrain counts, and returns those to rotation that may no longer be out: the one
// that would be back first returns first.
func (p *ejections) restrain(now time.Time) (changes []Change) {
	p.serving, p.out = 0, 0
	for _, m := range p.members {
		if !p.counts(m) {
			continue
		}
		p.serving++
		if m.state != Closed {
			p.out++
		}
	}
	for p.out > 0 && !p.allowed(p.out) {
		changes = append(changes, p.close(p.firstBack(), now, CauseNotAllowed, "no longer allowed to be ejected"))
	}
	return changes
}

// step moves every member on that has a reason to; next is when the next one has,
// zero if none is out.
func (p *ejections) step(now time.Time) (changes []Change, next time.Time) {
	for _, m := range p.members {
		switch {
		case m.state == HalfOpen:
			changes = append(changes, p.conclude(m, now)...)
		case m.state == Open && !m.until.After(now):
			changes = append(changes, p.halfOpen(m, now))
		}
	}
	for _, m := range p.members {
		if m.state != Closed || m.idle || !p.allowed(p.out+1) {
			continue
		}
		threshold := int64(p.spec.Failures)
		switch n, doubts := m.run.length(), m.doubts.run.length(); {
		case n >= threshold:
			changes = append(changes, p.eject(m, now, true, plural.Of(n, "connection")+" in a row failed, ejected"))
		case doubts >= threshold && m.doubts.several():
			changes = append(changes, p.eject(m, now, false, plural.Of(doubts, "connection")+" of several clients failed and none was answered, ejected"))
		}
	}
	for _, m := range p.members {
		if m.state != Closed && (next.IsZero() || m.until.Before(next)) {
			next = m.until
		}
	}
	return changes, next
}

// conclude draws the conclusion from the trials of a half-open member, if there
// is one to draw.
func (p *ejections) conclude(m *member, now time.Time) []Change {
	patient := m.until.After(now)
	switch m.trial.Load() {
	case trialPassed:
		return []Change{p.close(m, now, CauseTrialPassed, "its trial succeeded")}
	case trialFailed:
		m.endTrial()
		return []Change{p.open(m, now, CauseTrialFailed, true, "its trial failed, ejected again")}
	case trialDoubted:
		if m.doubts.several() {
			m.endTrial()
			return []Change{p.open(m, now, CauseTrialFailed, false, "trials of several clients failed, ejected again")}
		}
		m.trial.CompareAndSwap(trialDoubted, trialPending)
		m.until, m.reached = now.Add(trialPatience), false
		return []Change{{m.key, HalfOpen, p.trials(), CauseRenewed, "its trial failed, as its client may have brought about: another one may be made"}}
	case trialReached:
		switch {
		case !m.reached:
			m.reached, m.until = true, now.Add(trialPatience)
		case !patient:
			return []Change{p.close(m, now, CauseTrialPassed, fmt.Sprintf("its trial has been established for %s", trialPatience))}
		}
	case trialPending:
		if !patient {
			m.until = now.Add(trialPatience)
			return []Change{{m.key, HalfOpen, p.trials(), CauseRenewed, "its trial is not decided, another one may be made"}}
		}
	}
	return nil
}

// allowed reports whether n of the members that can take traffic may be out at once. A
// half-open one still is.
func (p *ejections) allowed(n int) bool {
	return p.spec.Failures > 0 && p.serving > 1 && n*100 <= p.spec.MaxPercent*p.serving
}

func (p *ejections) trials() int { return max(p.spec.HalfOpen, 1) }

// eject opens the circuit of a member that was in rotation.
func (p *ejections) eject(m *member, now time.Time, sure bool, why string) Change {
	m.forget(now)
	p.out++
	return p.open(m, now, CauseFailures, sure, why)
}

// open opens a member's circuit. If the evidence is sure, the next time will be longer.
func (p *ejections) open(m *member, now time.Time, cause Cause, sure bool, why string) Change {
	length := p.length(m.repeats)
	if sure && length < p.spec.Max {
		m.repeats++
	}
	m.state, m.until, m.lasted = Open, now.Add(length), length
	m.why = fmt.Sprintf("%s for %s", why, length)
	m.total++
	return Change{m.key, Open, 0, cause, m.why}
}

func (p *ejections) halfOpen(m *member, now time.Time) Change {
	m.state, m.until, m.reached = HalfOpen, now.Add(trialPatience), false
	m.why = "ejection time is over, on trial"
	m.failing.Add(1)
	m.trial.Store(trialPending)
	m.end(0) // what was on its way when it was ejected
	return Change{m.key, HalfOpen, p.trials(), CauseTimeOver, m.why}
}

func (m *member) endTrial() {
	if m.trial.Swap(noTrial) != noTrial {
		m.failing.Add(-1)
	}
}

func (p *ejections) close(m *member, now time.Time, cause Cause, why string) Change {
	m.endTrial()
	m.state, m.returned, m.why = Closed, now, ""
	m.end(0)
	if p.counts(m) {
		p.out--
	}
	return Change{m.key, Closed, 0, cause, why}
}

// length is Base doubled repeats times, at most Max.
func (p *ejections) length(repeats int) time.Duration {
	d := p.spec.Base
	for range repeats {
		if d >= p.spec.Max/2 {
			return max(p.spec.Base, p.spec.Max)
		}
		d *= 2
	}
	return d
}

// forget drops a repeat for every quiet time as long as the latest ejection.
func (m *member) forget(now time.Time) {
	if m.repeats == 0 || m.lasted <= 0 {
		return
	}
	quiet := now.Sub(m.returned)
	m.repeats -= int(min(int64(quiet/m.lasted), int64(m.repeats)))
}

// firstBack is the member that counts as out and will be back first, nil if none does:
// a half-open one before those that are open.
func (p *ejections) firstBack() (first *member) {
	for _, m := range p.members {
		if m.state == Closed || !p.counts(m) {
			continue
		}
		if first == nil || m.state > first.state || m.state == first.state && m.until.Before(first.until) {
			first = m
		}
	}
	return first
}

func (p *ejections) index() map[string]*member {
	index := make(map[string]*member, len(p.members))
	for _, m := range p.members {
		index[m.key] = m
	}
	return index
}
