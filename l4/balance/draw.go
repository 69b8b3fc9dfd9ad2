package balance

import (
	"math"
	"math/bits"
)

// lottery draws members with probability proportional to weight in O(1), by
// Walker's alias method as built by Vose (1991): every slot of a table as long as
// the list belongs to at most two members. In integers, hence exact.
type lottery struct {
	n     uint64
	sum   uint64   // of the weights; the size of every slot
	slots []ticket // nil if all weights are equal
}

// ticket is one slot: its own member below keep, another from there on.
type ticket struct {
	keep  uint64
	other uint32
}

func newLottery(members []Member) lottery {
	l := lottery{n: uint64(len(members))}
	equal := true
	for _, m := range members {
		l.sum += uint64(m.Weight)
		equal = equal && m.Weight == members[0].Weight
	}
	if equal {
		return l
	}
	l.slots = make([]ticket, len(members))
	var small, large []uint32 // members with less, and with more, than a slot
	for i, m := range members {
		l.slots[i] = ticket{uint64(m.Weight) * l.n, uint32(i)}
		if l.slots[i].keep < l.sum {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, g := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		l.slots[s].other = g
		l.slots[g].keep -= l.sum - l.slots[s].keep
		if l.slots[g].keep < l.sum {
			large = large[:len(large)-1]
			small = append(small, g)
		}
	}
	return l
}

// draw turns 64 random bits into a member's index. There must be members.
func (l *lottery) draw(r uint64) int {
	slot, rest := bits.Mul64(r, l.n)
	if l.slots == nil {
		return int(slot)
	}
	if coin, _ := bits.Mul64(rest, l.sum); coin >= l.slots[slot].keep {
		return int(l.slots[slot].other)
	}
	return int(slot)
}

// race draws two distinct members that are neither except nor refused, weighted,
// in one pass: each runs for an exponentially distributed time of mean 1/weight,
// and the first two home are a weighted draw without replacement (Efraimidis and
// Spirakis, 2006). Either is nil if too few are left.
func race(members []Member, except *Backend, skip func(*Backend) bool, rnd func() uint64) (first, second Member) {
	t1, t2 := math.Inf(1), math.Inf(1)
	for _, m := range members {
		if m.Backend == except || skip != nil && skip(m.Backend) {
			continue
		}
		uniform := float64(rnd()>>11+1) / (1 << 53) // (0, 1]
		t := -math.Log(uniform) / float64(m.Weight)
		switch {
		case t < t1:
			first, second = m, first
			t1, t2 = t, t1
		case t < t2:
			second, t2 = m, t
		}
	}
	return first, second
}
