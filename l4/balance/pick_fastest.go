package balance

import "github.com/poise-lb/poise/l4"

// fastest chooses the member that should answer a new flow first: its smoothed
// time to the first byte (connect included) times the flows it would then have,
// per weight. The factor keeps the fastest from taking everything until it is the
// slowest: latency is known only after the fact (the least_time method of nginx
// has it for the same reason).
//
// An estimate that nothing confirms fades, see estimate, so nobody is written off
// for ever. Equal members, such as all those of a new pool, take
// turns as in least-conn.
type fastest struct {
	members    []Member
	candidates []scaled
	clock      *clock
	typical    *reading
	start      int
}

// scaled is what is read of a member, close together.
type scaled struct {
	*Load
	*estimates
	perWeight float32 // 1/weight
}

var fastestAlgorithm = Algorithm{Word: "fastest", New: newFastest, ByLoad: true}

func newFastest(b Build) Picker {
	p := &fastest{members: b.Members, candidates: scaledOf(b.Members), clock: b.clock, typical: b.typical}
	if n := len(b.Members); n > 0 {
		p.start = int(b.Rand() % uint64(n))
	}
	return p
}

func scaledOf(members []Member) []scaled {
	list := make([]scaled, len(members))
	for i, m := range members {
		list[i] = scaled{m.load, m.earned, 1 / float32(m.Weight)}
	}
	return list
}

func (p *fastest) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	s := fastestScan{best: -1, now: p.clock.coarse(), typical: p.typical.typicalLatency()}
	p.scan(&s, p.start, len(p.candidates), skip)
	p.scan(&s, 0, p.start, skip)
	if s.best < 0 {
		return nil
	}
	p.candidates[s.best].Picked.Store(s.latest + 1)
	p.clock.sometimes(s.latest)
	return p.members[s.best].Backend
}

// fastestScan is the best of the candidates seen so far.
type fastestScan struct {
	best    int // -1 = none yet
	cost    float32
	picked  uint64 // of best
	latest  uint64 // the highest picked of all
	now     uint32
	typical float32
}

func (p *fastest) scan(s *fastestScan, from, to int, skip func(*Backend) bool) {
	for i := from; i < to; i++ {
		c := &p.candidates[i]
		cost := estimate(c.smooth.word.Load(), s.now, s.typical) * float32(c.burden(p.clock)+1) * c.perWeight
		picked := c.Picked.Load()
		s.latest = max(s.latest, picked)
		if s.best >= 0 && (cost > s.cost || cost == s.cost && picked >= s.picked) {
			continue
		}
		if skip == nil || !skip(p.members[i].Backend) {
			s.best, s.cost, s.picked = i, cost, picked
		}
	}
}
