package balance

import "github.com/poise-lb/poise/l4"

// leastConn chooses the member that would have the lowest load per weight with
// the new flow on it; flows that failed of late count as load, see burden. Equal ones take turns: the one chosen longest ago goes
// first, so that idle pools and short flows spread evenly instead of falling on
// whoever is listed first. That memory is in the backends and survives rebuilds.
//
// One scan of all members is, up to some hundreds of them, cheaper than any
// ordered structure that several cores would have to keep in order.
type leastConn struct {
	members    []Member
	candidates []candidate // what a scan reads of members, close together
	clock      *clock
	start      int // where it begins: random, for backends never chosen yet
}

type candidate struct {
	*Load
	weight uint64
}

var leastConnAlgorithm = Algorithm{Word: "least-conn", New: newLeastConn, ByLoad: true}

func newLeastConn(b Build) Picker {
	p := &leastConn{members: b.Members, candidates: make([]candidate, len(b.Members)), clock: b.clock}
	for i, m := range b.Members {
		p.candidates[i] = candidate{m.load, uint64(m.Weight)}
	}
	if n := len(b.Members); n > 0 {
		p.start = int(b.Rand() % uint64(n))
	}
	return p
}

func (p *leastConn) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	s := leastScan{best: -1}
	p.scan(&s, p.start, len(p.candidates), skip)
	p.scan(&s, 0, p.start, skip)
	if s.best < 0 {
		return nil
	}
	p.candidates[s.best].Picked.Store(s.latest + 1)
	p.clock.sometimes(s.latest)
	return p.members[s.best].Backend
}

// leastScan is the best of the candidates seen so far.
type leastScan struct {
	best   int    // -1 = none yet
	load   uint64 // of best, with the new flow
	weight uint64 // of best
	picked uint64 // of best
	latest uint64 // the highest picked of all
}

func (p *leastConn) scan(s *leastScan, from, to int, skip func(*Backend) bool) {
	for i := from; i < to; i++ {
		c := &p.candidates[i]
		load, picked := uint64(c.burden(p.clock)+1), c.Picked.Load()
		s.latest = max(s.latest, picked)
		if s.best >= 0 {
			// load/weight compared without dividing.
			a, b := load*s.weight, s.load*c.weight
			if a > b || a == b && picked >= s.picked {
				continue
			}
		}
		if skip == nil || !skip(p.members[i].Backend) {
			s.best, s.load, s.weight, s.picked = i, load, c.weight, picked
		}
	}
}
