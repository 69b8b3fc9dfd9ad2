package balance

import (
	"math/bits"

	"github.com/poise-lb/poise/l4"
)

// adaptive draws a member with probability proportional to weight times merit:
// the part of its weight that a backend has earned, which rises with each flow
// that is answered and falls with each that fails (multiplicative decrease, as in
// Chiu and Jain, 1989). A backend that fails one flow in two keeps a fifth of its
// share, one that fails all of them 1/64, which is how it is found out that it is
// well again.
//
// The draw is by weight, repeated until merit accepts it (rejection sampling), so
// that merit may change with every flow and nothing has to be rebuilt.
type adaptive struct {
	members []Member
	lottery lottery
	rand    func() uint64
}

var adaptiveAlgorithm = Algorithm{Word: "adaptive", New: newAdaptive}

func newAdaptive(b Build) Picker {
	return &adaptive{b.Members, newLottery(b.Members), b.Rand}
}

// adaptiveTries is how many draws may be refused before one pass over all members
// is cheaper.
const adaptiveTries = 8

func (p *adaptive) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	if len(p.members) == 0 {
		return nil
	}
	for range adaptiveTries {
		b := p.members[p.lottery.draw(p.rand())].Backend
		if w := b.earned.merit.word.Load(); w != 0 && float32(p.rand()>>40)/(1<<24) >= meritOf(w) {
			continue
		}
		if skip == nil || !skip(b) {
			return b
		}
	}
	return p.draw(skip)
}

// draw draws in two passes among those that skip leaves.
func (p *adaptive) draw(skip func(*Backend) bool) (last *Backend) {
	sum := uint64(0)
	for _, m := range p.members {
		if skip == nil || !skip(m.Backend) {
			sum += deserved(m)
		}
	}
	at, _ := bits.Mul64(p.rand(), sum)
	for _, m := range p.members {
		if skip != nil && skip(m.Backend) {
			continue
		}
		last = m.Backend
		d := deserved(m)
		if at < d {
			return last
		}
		at -= d
	}
	return last // merits, or skip's mind, have changed between the passes
}

// deserved is weight times merit in 1/65536.
func deserved(m Member) uint64 {
	return uint64(float32(m.Weight) * meritOf(m.earned.merit.word.Load()) * (1 << 16))
}
