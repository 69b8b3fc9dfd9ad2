package balance

import "github.com/poise-lb/poise/l4"

// ewma draws two distinct members by weight and takes the one where a new flow
// costs less: the peak-sensitive average of the time to the first byte, times the
// flows it would then have, per weight. The average jumps up with one slow answer
// and comes down over seconds of fast ones, so that a backend in trouble is
// avoided at once and forgiven slowly. This is the peak EWMA of Twitter's Finagle
// (2016); two draws instead of all, as in p2c.
type ewma struct {
	p2c
	typical *reading
}

var ewmaAlgorithm = Algorithm{Word: "ewma", New: newEWMA, ByLoad: true}

func newEWMA(b Build) Picker {
	return &ewma{p2c{b.Members, newLottery(b.Members), b.Rand, b.clock}, b.typical}
}

func (p *ewma) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	first, second := p.pair(skip)
	if first.Backend == nil || second.Backend == nil {
		return first.Backend
	}
	now, typical := p.clock.coarse(), p.typical.typicalLatency()
	if p.cost(second, now, typical)*float32(first.Weight) < p.cost(first, now, typical)*float32(second.Weight) {
		return second.Backend
	}
	return first.Backend
}

func (p *ewma) cost(m Member, now uint32, typical float32) float32 {
	return estimate(m.earned.peak.word.Load(), now, typical) * float32(m.load.burden(p.clock)+1)
}
