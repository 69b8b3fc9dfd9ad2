package balance

import (
	"fmt"
	"math"
	"math/bits"
	"testing"
)

// Every pair of random numbers, one for each of the equally likely outcomes, gives
// every ordered pair of distinct members exactly once.
func TestP2CDrawsExhaustively(t *testing.T) {
	for n := 2; n <= 9; n++ {
		var numbers []uint64
		members := membersOf(equal(n)...)
		p := newP2C(Build{Members: members, clock: new(clock), Rand: func() uint64 {
			r := numbers[0]
			numbers = numbers[1:]
			return r
		}}).(*p2c)
		seen := map[[2]string]int{}
		for i := range n {
			for j := range n - 1 {
				numbers = []uint64{middle(i, n), middle(j, n-1)}
				first, second := p.two()
				seen[[2]string{first.Name(), second.Name()}]++
			}
		}
		if len(seen) != n*(n-1) {
			t.Errorf("%d members: %d pairs, want %d", n, len(seen), n*(n-1))
		}
		for pair, times := range seen {
			if pair[0] == pair[1] || times != 1 {
				t.Errorf("%d members: %v %d times", n, pair, times)
			}
		}
	}
}

// middle returns the middle of part i of n of all 64-bit numbers.
func middle(i, n int) uint64 {
	q, _ := bits.Div64(uint64(i), 1<<63, uint64(n))
	if n == 1 {
		return 1 << 63
	}
	return q
}

func TestP2CDrawsAreWeighted(t *testing.T) {
	for _, weights := range [][]int{{3, 1}, {100, 100, 100, 100}, {5, 1, 1}, {1, 2, 3, 4}, {200, 1, 2, 1}} {
		t.Run(fmt.Sprint(weights), func(t *testing.T) {
			members := membersOf(weights...)
			p := newP2C(Build{Members: members, clock: new(clock), Rand: seeded(t)}).(*p2c)
			counts := map[string]int{}
			for range 100_000 {
				first, second := p.two()
				counts[first.Name()+second.Name()]++
			}
			among := make([]int, len(weights))
			for i := range among {
				among[i] = i
			}
			fits(t, counts, pairs(members, among))
		})
	}
}

// The mission's experiment: four backends with fixed loads. The most loaded is
// never chosen, the least loaded half of the time, the next a third.
func TestP2COverFixedLoads(t *testing.T) {
	for _, through := range []string{"draws", "race"} {
		t.Run(through, func(t *testing.T) {
			p := New(poolSpec("p2c", 100, 100, 100, 100, 100), seeded(t))
			for i, load := range []int64{30, 10, 20, 40, 0} {
				p.Backends()[i].load.Active.Store(load)
			}
			skip := func(b *Backend) bool { return b.Name() == "b4" }
			if through == "draws" {
				p.Update(poolSpec("p2c", 100, 100, 100, 100))
				skip = nil
			}
			counts := map[string]int{}
			for range 100_000 {
				lease, err := p.Acquire(flow(1), skip)
				if err != nil {
					t.Fatal(err)
				}
				counts[lease.Backend().Name()]++
				lease.Release()
			}
			if through == "draws" {
				fits(t, counts, map[string]float64{"b1": 3. / 6, "b2": 2. / 6, "b0": 1. / 6})
				return
			}
			// Two of the five draws may be b4; then both are drawn again.
			fits(t, counts, map[string]float64{"b1": 3. / 6, "b2": 2. / 6, "b0": 1. / 6})
		})
	}
}

// Load counts per weight: at 20 of weight 4 there is more room than at 10 of 1.
func TestP2CComparesPerWeight(t *testing.T) {
	p := New(poolSpec("p2c", 4, 1), nil)
	p.Backends()[0].load.Active.Store(20)
	p.Backends()[1].load.Active.Store(10)
	for range 100 {
		if name := touch(t, p, flow(1)); name != "b0" {
			t.Fatal(name)
		}
	}
}

// Power of two choices keeps the highest load within log log n of the mean; plain
// random would be at about 1.5 times it here.
func TestP2CBalances(t *testing.T) {
	p := New(poolSpec("p2c", equal(50)...), seeded(t))
	for i := range 50 * 40 {
		acquire(t, p, flow(i))
	}
	low, high := int64(math.MaxInt64), int64(0)
	for _, b := range p.Backends() {
		low, high = min(low, b.Active()), max(high, b.Active())
	}
	if high > 44 || low < 34 {
		t.Errorf("loads from %d to %d around 40", low, high)
	}
}
