package balance

import (
	"net/netip"
	"slices"
	"time"
)

// view is what the data path sees. It is immutable but for counters.
type view struct {
	version    uint64   // counts publications of the pool
	members    []Member // all that may get flows: eligible, of the tier in use
	strategies []strategy
	lane       *lane // nil: nobody is half-open or in slow start
	sticky     *stickyTable
	stickyTTL  time.Duration

	// plain: the one picker decides about every flow.
	plain     bool
	comparing bool   // between two strategies
	split     uint64 // hashes below it are A's, of 2^64
	splitAll  bool

	hash          HashSpec
	seed          uint64
	panic, backup bool
	queue         Queue
	retry         RetryBudget
	backends      []*Backend
	addresses     map[netip.AddrPort]struct{} // of these
	leaving       []*Backend
}

// rebuildLocked is the one place that decides who is eligible and with which
// weight; it publishes the result. p.mu is held.
//
// The order: flags and weights say who is eligible, tiers and panic who of those
// is in use, trials and slow start who of those is left to the algorithm.
func (p *Pool) rebuildLocked() {
	now := time.Now()
	old := p.view.Load()
	p.version++
	v := &view{
		version: p.version,
		hash:    p.spec.Hash, seed: p.spec.Seed, queue: p.spec.Queue, retry: p.spec.Retry,
		sticky:   p.sticky,
		backends: p.backends, addresses: p.addresses,
		leaving: slices.Clone(p.leaving),
	}
	if p.sticky != nil {
		v.stickyTTL = p.spec.Sticky.TTL
	}
	v.members, v.panic, v.backup = p.tierLocked()
	p.rampLocked(now)
	steady, scaled := p.divideLocked(v, old)

	if ab := p.spec.AB; ab != nil {
		v.comparing = true
		v.split, v.splitAll = splitOf(ab.Split)
	}
	for i, algorithm := range p.spec.Algorithms() {
		s := strategy{algorithm: algorithm, members: steady}
		if algorithm.ByHash {
			s.members = scaled
		}
		var before *strategy
		if old != nil && i < len(old.strategies) {
			before = &old.strategies[i]
		}
		s.picker = p.pickerLocked(&s, v, old, before)
		v.strategies = append(v.strategies, s)
	}
	v.plain = !v.comparing && v.lane == nil && v.sticky == nil
	p.view.Store(v)
	if p.watch != nil {
		p.watch()
	}
}

// pickerLocked returns what chooses for s: the picker before, with its place, if
// nothing it was built from has changed. p.mu is held.
func (p *Pool) pickerLocked(s *strategy, v, old *view, before *strategy) Picker {
	b := Build{Members: s.members, Hash: v.hash, Seed: v.seed, Rand: p.rand, clock: &p.clock, typical: &p.typical, step: &p.line.Step}
	if len(v.strategies) > 0 { // two that share turns would not take turns
		b.step = &p.apart
	}
	if before != nil {
		if before.algorithm.Word == s.algorithm.Word && old.hash == v.hash && old.seed == v.seed && slices.Equal(before.members, s.members) {
			return before.picker
		}
		b.Previous = before.picker
	}
	return s.algorithm.New(b)
}

// tierLocked returns the members of the tier in use. Backups are used when no
// primary is eligible, and left as soon as one is. Panic is judged within the
// tier: it overrides what was found out about backends (Down, Ejected), not what
// the operator or the resolver said. p.mu is held.
func (p *Pool) tierLocked() (members []Member, panic, backup bool) {
	healthy, usable := p.eligibleLocked(false)
	if len(healthy) == 0 {
		backups, usableBackups := p.eligibleLocked(true)
		if len(backups) > 0 || p.spec.Panic > 0 && len(usable) == 0 {
			healthy, usable, backup = backups, usableBackups, len(usableBackups) > 0
		}
	}
	if len(healthy)*100 < p.spec.Panic*len(usable) {
		return usable, true, backup
	}
	return healthy, false, backup && len(healthy) > 0
}

// eligibleLocked lists one tier: the eligible, and those that are at least not
// out by anybody's wish. p.mu is held.
func (p *Pool) eligibleLocked(backup bool) (healthy, usable []Member) {
	for _, b := range p.backends {
		w := b.Weight()
		if w == 0 || b.Backup() != backup || b.Flags()&^(Down|Ejected) != 0 {
			continue
		}
		usable = append(usable, Member{b, uint16(w)})
		if b.Flags() == 0 {
			healthy = append(healthy, Member{b, uint16(w)})
		}
	}
	return healthy, usable
}

// rampLocked notes for every backend how far its slow start is, and sets the
// timer for the next step of any. p.mu is held.
//
// It begins whenever a backend comes into use: new, up again, back from the
// operator's hands, its trials passed. The pool's first backends are an exception:
// nobody is there to take their share meanwhile.
func (p *Pool) rampLocked(now time.Time) {
	var next time.Time
	paced := p.spec.SlowStart > 0 && p.spec.byLoad()
	for _, b := range p.backends {
		use := b.Flags() == 0 && b.Weight() > 0 && b.trial.Load() == nil
		if use && !b.inUse && p.populated {
			b.usedSince = now
		}
		b.inUse = use
		if !use {
			b.usedSince = time.Time{}
			b.catchUp = catchUp{}
		}
		var due time.Time
		if b.ramp, due = rampStep(b.usedSince, now, p.spec.SlowStart); due.IsZero() {
			if !b.usedSince.IsZero() {
				b.usedSince = time.Time{} // a longer window must not start it again
				b.catchUp = catchUp{behind: true, from: b.Total()}
			}
			if b.catchUp.behind = b.catchUp.behind && paced; b.catchUp.behind {
				due = now.Add(min(max(p.spec.SlowStart/rampSteps, time.Millisecond), time.Second))
			}
		}
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	p.populated = p.populated || len(p.backends) > 0
	if p.step != nil {
		p.step.Stop()
		p.step = nil
	}
	if !next.IsZero() {
		p.step = time.AfterFunc(next.Sub(now), p.nextStep)
	}
}

// nextStep lets slow starts advance. It runs on a timer, for as long as there are
// any: a pool that is dropped is free after one window at the latest.
func (p *Pool) nextStep() {
	p.mu.Lock()
	p.rebuildLocked()
	p.mu.Unlock()
	p.serve()
}

// divideLocked decides who of v.members is left to the algorithm, steady, and who
// goes by the lane. scaled is for algorithms that know only weights: all but the
// half-open, slow ones with a part of their weight.
//
// Slow starts are relative: if all members are in one, those farthest ahead count
// as full. So a pool whose members all start at once refuses nobody, and treats
// them alike. In panic everybody is needed in full. p.mu is held.
func (p *Pool) divideLocked(v, old *view) (steady, scaled []Member) {
	if v.panic {
		return v.members, v.members
	}
	var trials, slow []*Backend
	var shares []float64
	top, sum, heaviest := 0, 0.0, 0
	for _, m := range v.members {
		if m.trial.Load() == nil {
			top = max(top, m.ramp)
			sum += float64(m.Weight)
			heaviest = max(heaviest, int(m.Weight))
		}
	}
	p.catchUpLocked(v.members, top)
	for _, m := range v.members {
		switch {
		case m.trial.Load() != nil:
			trials = append(trials, m.Backend)
		case m.catchUp.behind:
			slow = append(slow, m.Backend)
			shares = append(shares, float64(m.Weight)/sum*catchUpShare)
		case m.ramp == top:
			steady = append(steady, m)
		default:
			slow = append(slow, m.Backend)
			shares = append(shares, float64(m.Weight)/sum*float64(m.ramp)/float64(top))
		}
	}
	var before *lane
	if old != nil {
		before = old.lane
	}
	v.lane = newLane(trials, slow, shares, before)
	if len(slow) == 0 {
		return steady, steady
	}
	for _, m := range v.members {
		if m.trial.Load() == nil {
			w := int(m.Weight) * m.ramp
			if heaviest*top > maxWeight {
				w = max(w*maxWeight/(heaviest*top), 1)
			}
			scaled = append(scaled, Member{m.Backend, uint16(w)})
		}
	}
	return steady, scaled
}

// onTrial reports whether b is half-open in this view.
func (v *view) onTrial(b *Backend) bool { return v.lane != nil && slices.Contains(v.lane.trials, b) }

// has reports whether b is a member.
func (v *view) has(b *Backend) bool {
	return slices.ContainsFunc(v.members, func(m Member) bool { return m.Backend == b })
}
