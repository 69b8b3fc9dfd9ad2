package balance

import "github.com/poise-lb/poise/l4"

// random draws a member with probability proportional to its weight. It keeps no
// state at all, so any number of balancers do together what one would do.
type random struct {
	members []Member
	lottery lottery
	rand    func() uint64
}

var randomAlgorithm = Algorithm{Word: "random", New: newRandom}

func newRandom(b Build) Picker {
	return &random{b.Members, newLottery(b.Members), b.Rand}
}

func (p *random) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	if len(p.members) == 0 {
		return nil
	}
	b := p.members[p.lottery.draw(p.rand())].Backend
	if skip == nil || !skip(b) {
		return b
	}
	other, _ := race(p.members, b, skip, p.rand)
	return other.Backend
}
