package balance

import (
	"errors"
	"time"

	"github.com/poise-lb/poise/l4"
)

// Why Acquire grants no lease. Neither is worth waiting for in a loop.
var (
	ErrNoBackend = errors.New("no eligible backend")
	ErrBusy      = errors.New("every eligible backend is at max_connections")
)

// Acquire chooses a backend for f and adds one unit of load to it. A nil skip
// refuses nobody; then the call allocates nothing. Otherwise backends that skip
// refuses are left out: those already tried, usually.
//
// The error is ErrNoBackend if nobody is eligible or skip refuses all who are,
// and ErrBusy if all that are left are at MaxConnections, half-open with all
// trials out, or spoken for by those who wait in the queue; see Wait.
func (p *Pool) Acquire(f l4.Flow, skip func(*Backend) bool) (Lease, error) {
	v := p.view.Load()
	if p.queue.waiting.Load() != 0 {
		return Lease{}, v.whyNone(skip)
	}
	undone := false
	if v.plain { // the usual case, spelt out: passing Flow and Lease on costs as much as choosing
		s := &v.strategies[0]
		b := s.picker.Pick(f, skip)
		if b != nil && !b.take() {
			b = s.takeAny(f, skip)
		}
		if b == nil {
			return Lease{}, v.whyNone(skip)
		}
		if p.view.Load() == v {
			b.load.Total.Add(1)
			return Lease{backend: b, held: true}, nil
		}
		b.give() // the view has changed: look again
		undone = true
	}
	lease, again, err := p.acquire(f, skip)
	if (undone || again) && p.queue.waiting.Load() != 0 {
		p.serve() // it may have seen no room because of what was undone
	}
	return lease, err
}

// acquire is Acquire regardless of the queue. undone tells that load was taken
// for a moment and given back.
func (p *Pool) acquire(f l4.Flow, skip func(*Backend) bool) (l Lease, undone bool, err error) {
	for {
		v := p.view.Load()
		l = v.lease(f, skip)
		if l.backend == nil {
			return Lease{}, undone, v.whyNone(skip)
		}
		if p.view.Load() == v || p.confirm(&l) {
			l.backend.load.Total.Add(1)
			if l.strategy != noStrategy && skip == nil {
				p.compared[l.strategy-1].sessions.Add(1)
			}
			return l, undone, nil
		}
		l.undo()
		undone = true
	}
}

// lease takes load on the backend that is chosen for f; the zero Lease if it finds
// none.
func (v *view) lease(f l4.Flow, skip func(*Backend) bool) Lease {
	if !v.plain {
		return v.leaseAside(f, skip)
	}
	b := v.strategies[0].take(f, skip)
	return Lease{backend: b, held: b != nil}
}

// leaseAside is lease where more than one picker decides: the table of sources
// first, then the lane, then the flow's strategy, and at last whoever has room.
func (v *view) leaseAside(f l4.Flow, skip func(*Backend) bool) Lease {
	s, id := v.of(f)
	if v.sticky == nil {
		l := v.leaseOf(s, f, skip)
		l.strategy = id
		return l
	}
	source, now := stickySource(f), time.Now()
	b := v.sticky.find(source, now, v.stickyTTL)
	if b != nil && v.has(b) && !v.onTrial(b) && (skip == nil || !skip(b)) {
		if b.take() {
			v.sticky.bind(source, b, now)
			return Lease{backend: b, held: true, strategy: id}
		}
		l := v.leaseOf(s, f, skip) // it is full: another one, this time only
		l.strategy = id
		return l
	}
	l := v.leaseOf(s, f, skip)
	if l.strategy = id; l.backend != nil && l.trial == nil {
		v.sticky.bind(source, l.backend, now)
	}
	return l
}

func (v *view) leaseOf(s *strategy, f l4.Flow, skip func(*Backend) bool) Lease {
	if v.lane == nil {
		b := s.take(f, skip)
		return Lease{backend: b, held: b != nil}
	}
	if l := v.lane.lease(skip); l.backend != nil {
		return l
	}
	slow := len(v.lane.slow) > 0 && !s.algorithm.ByHash
	if slow {
		if b := v.lane.due(); b != nil && (skip == nil || !skip(b)) && b.take() {
			return Lease{backend: b, held: true}
		}
	}
	b := s.take(f, skip)
	if b == nil && slow {
		b = v.lane.anyLease(skip)
	}
	return Lease{backend: b, held: b != nil}
}

// take picks and takes load on the backend that is picked; nil if there is none.
func (s *strategy) take(f l4.Flow, skip func(*Backend) bool) *Backend {
	b := s.picker.Pick(f, skip)
	if b == nil || b.take() {
		return b
	}
	return s.takeAny(f, skip)
}

// takeAny picks, leaving out full backends, until it has load on one; nil if it
// cannot. With a nil skip it allocates nothing either: a pool that lives near its
// limits is a normal pool.
func (s *strategy) takeAny(f l4.Flow, skip func(*Backend) bool) *Backend {
	refuse := full
	if skip != nil {
		refuse = func(b *Backend) bool { return full(b) || skip(b) }
	}
	for {
		b := s.picker.Pick(f, refuse)
		if b == nil || b.take() {
			return b
		}
	}
}

// Others reports whether there is any eligible backend that skip does not refuse,
// with room or without. It takes no lock.
func (p *Pool) Others(skip func(*Backend) bool) bool {
	return p.view.Load().whyNone(skip) == ErrBusy
}

func full(b *Backend) bool { return b.load.full() }

// whyNone tells "all refused" from "all full".
func (v *view) whyNone(skip func(*Backend) bool) error {
	for _, m := range v.members {
		if skip == nil || !skip(m.Backend) {
			return ErrBusy
		}
	}
	return ErrNoBackend
}

// confirm decides whether load just taken stands although the view changed
// meanwhile: it does if the backend is still a member, and half-open only if it
// was. Taking first and looking afterwards is what lets a writer that published a
// view without a backend rely on its Active.
func (p *Pool) confirm(l *Lease) bool {
	for {
		v := p.view.Load()
		if !v.has(l.backend) || l.trial == nil && v.onTrial(l.backend) {
			return false
		}
		if p.view.Load() == v {
			return true
		}
	}
}
