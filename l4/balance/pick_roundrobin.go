package balance

import (
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
)

// roundRobin gives each member its turn, as often as its weight says and as
// evenly spaced as the weights allow. The order of a whole cycle is computed
// once; a pick is one atomic step along it, which other data paths take as well, so any whole number of cycles is
// exact however many pick at once.
//
// What a member still has to wait for its next turn outlives the picker, in
// Backend.turn: a change of the set goes on where the old one stopped and
// favours nobody, whoever happens to be listed first. A new pool starts at
// random.
type roundRobin struct {
	members []Member
	weights []uint64 // turns of each in a cycle
	cycle   []uint32 // indices of members

	step *atomic.Uint64 // turns handed out by the pool
	from uint64         // step at the beginning of the cycle
}

// maxCycle bounds the memory (256 KiB) and time (a few ms) of a cycle. It holds
// the largest weight beside a weight of 1; only when the weights without their
// common divisor sum to more are they rounded.
const maxCycle = 1 << 16

var roundRobinAlgorithm = Algorithm{Word: "round-robin", New: newRoundRobin}

func newRoundRobin(b Build) Picker {
	if previous, ok := b.Previous.(*roundRobin); ok {
		previous.settle()
	}
	p := &roundRobin{members: b.Members, weights: cycleWeights(b.Members), step: b.step, from: b.step.Load()}
	n := uint64(len(b.Members))
	order := newTurns(len(b.Members))
	length, fresh := uint64(0), true
	for i, m := range b.Members {
		if m.turn == 0 {
			m.turn = (2*uint64(i) + 1) * (turnUnit / 2 / n) // evenly spread, in list order
		} else {
			fresh = false
		}
		order.add(i, p.weights[i], m.turn)
		length += p.weights[i]
	}
	p.cycle = make([]uint32, length)
	for i := range p.cycle {
		p.cycle[i] = order.next()
	}
	if fresh && length > 0 {
		p.from -= b.Rand() % length
	}
	return p
}

// cycleWeights returns the turns of each member in a cycle: the weights in lowest
// terms, scaled down if the cycle would be too long, but at least 1.
func cycleWeights(members []Member) []uint64 {
	weights := make([]uint64, len(members))
	sum, divisor := uint64(0), uint64(0)
	for i, m := range members {
		weights[i] = uint64(m.Weight)
		sum += weights[i]
		divisor = gcd(weights[i], divisor)
	}
	for i := range weights {
		if sum/divisor > maxCycle {
			weights[i] = max(weights[i]*maxCycle/sum, 1)
		} else {
			weights[i] /= divisor
		}
	}
	return weights
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// settle writes down what each member has left to wait. Turns handed out by the
// old picker after this are forgotten, which costs nobody more than one of them.
func (p *roundRobin) settle() {
	if len(p.cycle) == 0 {
		return
	}
	done := (p.step.Load() - p.from) % uint64(len(p.cycle))
	if done == 0 {
		return // as it started
	}
	credit := make([]uint64, len(p.members))
	for i, m := range p.members {
		credit[i] = m.turn
	}
	now := uint64(0)
	for _, i := range p.cycle[:done] {
		now = credit[i] / p.weights[i]
		credit[i] += turnUnit
	}
	for i, m := range p.members {
		left := credit[i] - min(now*p.weights[i], credit[i])
		m.turn = min(max(left, 1), turnUnit)
	}
}

func (p *roundRobin) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	if len(p.cycle) == 0 {
		return nil
	}
	b := p.next()
	if skip == nil || !skip(b) {
		return b
	}
	// A refused turn is spent, and so is the one taken instead: if it were not,
	// the follower of a broken backend would get its share on top of its own.
	for range p.members {
		if b = p.next(); !skip(b) {
			return b
		}
	}
	// Light members can be far away in a cycle of heavy ones.
	start := p.step.Load() - p.from
	for i := range p.members {
		b = p.members[(start+uint64(i))%uint64(len(p.members))].Backend
		if !skip(b) {
			return b
		}
	}
	return nil
}

func (p *roundRobin) next() *Backend {
	step := p.step.Add(1) - 1 - p.from
	return p.members[p.cycle[step%uint64(len(p.cycle))]].Backend
}
