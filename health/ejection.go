package health

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// member is one backend as the outlier detector sees it.
type member struct {
	// Set once.
	key     string
	failing *atomic.Int64 // how many members of the pool have a run

	// run is the failures in a row, written by Report without a lock; retired once
	// the member has left, so that a late Report cannot revive it.
	run atomic.Int64

	// The state machine's.
	ejected bool
	until   time.Time // the ejection's end; the latest one's when returned
	lasted  time.Duration
	repeats int // decides the next ejection's length
	why     string
	total   uint64
}

const retired = math.MinInt64 / 2

// failed counts one failure and returns the run's length, or a negative number
// when the member has left.
func (m *member) failed() int64 {
	n := m.run.Add(1)
	if n == 1 {
		m.failing.Add(1)
	}
	return n
}

// end replaces the run by 0 or retired.
func (m *member) end(with int64) {
	for {
		n := m.run.Load()
		if n < 0 || n == with {
			return
		}
		if m.run.CompareAndSwap(n, with) {
			if n > 0 {
				m.failing.Add(-1)
			}
			return
		}
	}
}

// event is one thing to tell: an ejection, or a return.
type event struct {
	key     string
	ejected bool
	why     string
}

// ejections is the pure state machine of one pool: reports have been counted in
// the members, now comes in, events go out.
type ejections struct {
	spec    PassiveSpec
	members []*member     // in the pool's order
	failing *atomic.Int64 // see member
	out     int           // how many are ejected
}

// update changes the members and the spec; what can no longer be ejected returns.
func (p *ejections) update(now time.Time, spec PassiveSpec, keys []string) (events []event) {
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
		if m.ejected {
			events = append(events, p.release(m, now, "removed"))
		}
		m.end(retired)
	}
	// The one that would be back first returns first.
	for p.out > 0 && !p.allowed(p.out) {
		events = append(events, p.release(p.firstBack(), now, "no longer allowed to be ejected"))
	}
	if spec.Failures <= 0 {
		for _, m := range p.members {
			m.end(0)
		}
	}
	return events
}

// step lets return whose time is up, then ejects who fails; next is when the next
// one returns, zero if none is out.
func (p *ejections) step(now time.Time) (events []event, next time.Time) {
	for _, m := range p.members {
		if m.ejected && !m.until.After(now) {
			events = append(events, p.release(m, now, "ejection time is over"))
		}
	}
	for _, m := range p.members {
		if n := m.run.Load(); !m.ejected && n >= int64(p.spec.Failures) && p.allowed(p.out+1) {
			events = append(events, p.eject(m, now, n))
		}
	}
	if m := p.firstBack(); m != nil {
		next = m.until
	}
	return events, next
}

// allowed reports whether n members may be out at once.
func (p *ejections) allowed(n int) bool {
	return p.spec.Failures > 0 && len(p.members) > 1 && n*100 <= p.spec.MaxPercent*len(p.members)
}

func (p *ejections) eject(m *member, now time.Time, failures int64) event {
	m.forget(now)
	length := p.length(m.repeats)
	if length < p.spec.Max {
		m.repeats++
	}
	m.ejected, m.until, m.lasted = true, now.Add(length), length
	m.why = fmt.Sprintf("%d connects in a row failed, ejected for %s", failures, length)
	m.total++
	p.out++
	return event{m.key, true, m.why}
}

func (p *ejections) release(m *member, now time.Time, why string) event {
	m.ejected, m.until, m.why = false, now, ""
	m.end(0)
	p.out--
	return event{m.key, false, why}
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
	quiet := now.Sub(m.until)
	m.repeats -= int(min(int64(quiet/m.lasted), int64(m.repeats)))
}

// firstBack is the ejected member whose time is up first, nil if none is out.
func (p *ejections) firstBack() (first *member) {
	for _, m := range p.members {
		if m.ejected && (first == nil || m.until.Before(first.until)) {
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
