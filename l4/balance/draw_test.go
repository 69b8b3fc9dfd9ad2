package balance

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// membersOf builds members without a pool.
func membersOf(weights ...int) []Member {
	members := make([]Member, len(weights))
	for i, w := range weights {
		members[i] = Member{&Backend{id: backendSpec(i, w).id(), load: new(Load), earned: new(estimates)}, uint16(w)}
	}
	return members
}

// The shares that the table's slots add up to are the weights, to the unit.
func TestLotteryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, maxWeight), 1, 64).Draw(t, "weights")
		l := newLottery(membersOf(weights...))
		if l.slots == nil {
			for _, w := range weights {
				if w != weights[0] {
					t.Fatal("unequal weights without a table")
				}
			}
			return
		}
		shares := make([]uint64, len(weights))
		for i, s := range l.slots {
			keep := min(s.keep, l.sum)
			shares[i] += keep
			shares[s.other] += l.sum - keep
		}
		for i, w := range weights {
			if want := uint64(w) * l.n; shares[i] != want {
				t.Errorf("weight %d of %v: share %d, want %d", w, weights, shares[i], want)
			}
		}
	})
}

func TestLotteryEdges(t *testing.T) {
	for _, weights := range [][]int{{1}, {1, 1, 1}, {1, maxWeight}, {maxWeight, 1, 1}} {
		l := newLottery(membersOf(weights...))
		for _, r := range []uint64{0, 1, 1 << 63, math.MaxUint64} {
			if i := l.draw(r); i < 0 || i >= len(weights) {
				t.Errorf("%v: draw %#x gives %d", weights, r, i)
			}
		}
	}
}

func TestRaceIsWeighted(t *testing.T) {
	rnd := seeded(t)
	members := membersOf(5, 1, 3, 1)
	refused := func(b *Backend) bool { return b == members[2].Backend }
	for name, c := range map[string]struct {
		except *Backend
		skip   func(*Backend) bool
		among  []int
	}{
		"all":    {nil, nil, []int{0, 1, 2, 3}},
		"skip":   {nil, refused, []int{0, 1, 3}},
		"except": {members[0].Backend, nil, []int{1, 2, 3}},
		"both":   {members[0].Backend, refused, []int{1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			counts := map[string]int{}
			for range 20000 {
				first, second := race(members, c.except, c.skip, rnd)
				counts[first.Name()+second.Name()]++
			}
			fits(t, counts, pairs(members, c.among))
		})
	}
	first, second := race(members, members[0].Backend, func(b *Backend) bool { return b != members[1].Backend }, rnd)
	if first.Backend != members[1].Backend || second.Backend != nil {
		t.Error("one left: not that one, alone")
	}
}

// pairs returns the probability of each ordered pair in a weighted draw without
// replacement.
func pairs(members []Member, among []int) map[string]float64 {
	sum := 0.0
	for _, i := range among {
		sum += float64(members[i].Weight)
	}
	probability := map[string]float64{}
	for _, i := range among {
		for _, j := range among {
			if i != j {
				a, b := float64(members[i].Weight), float64(members[j].Weight)
				probability[members[i].Name()+members[j].Name()] = a / sum * b / (sum - a)
			}
		}
	}
	return probability
}

func TestRandomIsWeighted(t *testing.T) {
	for _, weights := range [][]int{{1}, {100, 100, 100}, {5, 1, 1}, {1, 2, 3, 4, 5, 6, 7, 8}, {1000, 1}} {
		t.Run(fmt.Sprint(weights), func(t *testing.T) {
			p := New(poolSpec("random", weights...), seeded(t))
			counts, probability, sum := map[string]int{}, map[string]float64{}, 0
			for _, w := range weights {
				sum += w
			}
			for i, w := range weights {
				probability[fmt.Sprintf("b%d", i)] = float64(w) / float64(sum)
			}
			for range 100_000 {
				counts[touch(t, p, flow(1))]++
			}
			fits(t, counts, probability)
		})
	}
}

// Those not refused share in proportion, too.
func TestRandomIsWeightedAmongTheRest(t *testing.T) {
	p := New(poolSpec("random", 4, 3, 2, 1), seeded(t))
	b0 := p.Backends()[0]
	counts := map[string]int{}
	for range 50_000 {
		lease, err := p.Acquire(flow(1), func(b *Backend) bool { return b == b0 })
		if err != nil {
			t.Fatal(err)
		}
		counts[lease.Backend().Name()]++
		lease.Release()
	}
	fits(t, counts, map[string]float64{"b1": 3. / 6, "b2": 2. / 6, "b3": 1. / 6})
}
