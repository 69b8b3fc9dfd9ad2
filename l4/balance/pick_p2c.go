package balance

import (
	"math/bits"

	"github.com/poise-lb/poise/l4"
)

// p2c draws two distinct members by weight and takes the one that would have the
// lower load per weight: nearly as even as least-conn, at a cost that does not
// grow with the pool, and without the herd that several balancers make when all
// see the same minimum (Mitzenmacher, "The Power of Two Choices in Randomized Load
// Balancing", 2001).
type p2c struct {
	members []Member
	lottery lottery
	rand    func() uint64
	clock   *clock
}

var p2cAlgorithm = Algorithm{Word: "p2c", New: newP2C, ByLoad: true}

func newP2C(b Build) Picker {
	return &p2c{b.Members, newLottery(b.Members), b.Rand, b.clock}
}

func (p *p2c) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	first, second := p.pair(skip)
	if second.Backend != nil && p.lighter(second, first) {
		return second.Backend
	}
	return first.Backend
}

// pair draws two distinct members that skip does not refuse, by weight. Either is
// the zero Member if too few are left.
func (p *p2c) pair(skip func(*Backend) bool) (first, second Member) {
	switch len(p.members) {
	case 0:
		return
	case 1:
		if skip == nil || !skip(p.members[0].Backend) {
			first = p.members[0]
		}
		return
	}
	first, second = p.two()
	if skip != nil && (skip(first.Backend) || skip(second.Backend)) {
		first, second = race(p.members, nil, skip, p.rand)
	}
	return first, second
}

// two draws two distinct members. The second draw is one from all the others:
// drawing it from all and moving on to the neighbour when it hits the first would
// favour neighbours.
func (p *p2c) two() (first, second Member) {
	r := p.rand()
	p.clock.sometimes(r)
	i := p.lottery.draw(r)
	first = p.members[i]
	if p.lottery.slots == nil {
		j, _ := bits.Mul64(p.rand(), p.lottery.n-1)
		if int(j) >= i {
			j++
		}
		return first, p.members[j]
	}
	if len(p.members) == 2 {
		return first, p.members[1-i]
	}
	for range 8 { // then it is very heavy, and one pass over the others is cheaper
		if j := p.lottery.draw(p.rand()); j != i {
			return first, p.members[j]
		}
	}
	second, _ = race(p.members, first.Backend, nil, p.rand)
	return first, second
}

// lighter reports whether a, with a new flow on it, would carry less per weight
// than b.
func (p *p2c) lighter(a, b Member) bool {
	return uint64(a.load.burden(p.clock)+1)*uint64(b.Weight) < uint64(b.load.burden(p.clock)+1)*uint64(a.Weight)
}
