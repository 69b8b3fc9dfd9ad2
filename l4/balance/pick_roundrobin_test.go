package balance

import (
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// sequence returns the last letters of the names of the next n backends.
func sequence(tb testing.TB, p *Pool, n int) string {
	tb.Helper()
	var s strings.Builder
	for range n {
		s.WriteString(strings.TrimPrefix(touch(tb, p, flow(1)), "b"))
	}
	return s.String()
}

func TestRoundRobinOrder(t *testing.T) {
	for _, c := range []struct {
		weights []int
		cycle   string // or any rotation of it
	}{
		{[]int{100}, "0"},
		{[]int{100, 100, 100}, "012"},
		{[]int{5, 1, 1}, "0001002"},
		{[]int{500, 100, 100}, "0001002"},
		{[]int{2, 1}, "001"},
		{[]int{3, 2}, "01010"},
		{[]int{1, 0, 1}, "02"},
	} {
		for range 10 { // each starts somewhere else
			p := New(poolSpec("round-robin", c.weights...), nil)
			n := len(c.cycle)
			got := sequence(t, p, 2*n)
			if got[:n] != got[n:] || !strings.Contains(c.cycle+c.cycle, got[:n]) {
				t.Errorf("%v: %s, want turns of %s", c.weights, got, c.cycle)
			}
		}
	}
}

func TestRoundRobinStartsAnywhere(t *testing.T) {
	rnd := seeded(t)
	counts, probability := map[string]int{}, map[string]float64{}
	for range 3000 {
		counts[touch(t, New(poolSpec("round-robin", 1, 1, 1), rnd), flow(1))]++
	}
	for name := range counts {
		probability[name] = 1. / 3
	}
	fits(t, counts, probability)
}

// The mission's first two experiments: 100/100/100 of 300, and 150/150 when one
// is down.
func TestRoundRobinIsExact(t *testing.T) {
	p := New(poolSpec("round-robin", 100, 100, 100), nil)
	touch(t, p, flow(1))
	count := func() (n [3]int) {
		for _, c := range sequence(t, p, 300) {
			n[c-'0']++
		}
		return n
	}
	if got := count(); got != [3]int{100, 100, 100} {
		t.Errorf("three up: %v", got)
	}
	p.SetFlag(p.Backends()[1].ID(), Down, true)
	if got := count(); got != [3]int{150, 0, 150} {
		t.Errorf("one down: %v", got)
	}
}

// Case O-08, second part: 60 times a reload and one connection.
func TestRoundRobinSurvivesReload(t *testing.T) {
	t.Run("identical", func(t *testing.T) {
		p := New(poolSpec("round-robin", 100, 100, 100), nil)
		counts := map[string]int{}
		for range 60 {
			p.Update(poolSpec("round-robin", 100, 100, 100))
			counts[touch(t, p, flow(1))]++
		}
		for name, n := range counts {
			if n != 20 {
				t.Errorf("%s: %d of 60", name, n)
			}
		}
	})
	t.Run("weights change", func(t *testing.T) {
		p := New(poolSpec("round-robin", 100, 100, 100), nil)
		counts := map[string]int{}
		for i := range 60 {
			p.Update(poolSpec("round-robin", 100, 100+i%2, 100))
			counts[touch(t, p, flow(1))]++
		}
		for name, n := range counts {
			if n < 18 || n > 22 {
				t.Errorf("%s: %d of 60", name, n)
			}
		}
	})
	t.Run("one flaps", func(t *testing.T) {
		p := New(poolSpec("round-robin", 100, 100, 100), nil)
		counts := map[string]int{}
		for i := range 60 {
			p.SetFlag(p.Backends()[2].ID(), Down, i%2 == 0)
			counts[touch(t, p, flow(1))]++
		}
		// Half of the time a third, half of the time nothing, and the others
		// share alike.
		if c := counts["b2"]; c < 8 || c > 12 {
			t.Errorf("the one that flaps: %v", counts)
		}
		if d := counts["b0"] - counts["b1"]; d < -3 || d > 3 {
			t.Errorf("the others: %v", counts)
		}
	})
	t.Run("the set turns over", func(t *testing.T) {
		p := New(poolSpec("round-robin", 100, 100, 100, 100), nil)
		counts := map[string]int{}
		for i := range 600 {
			spec := poolSpec("round-robin", 100, 100, 100, 100)
			spec.Backends[i%4].Initial = Down
			spec.Backends[i%4].Weight = 0
			p.Update(spec)
			counts[touch(t, p, flow(1))]++
		}
		for name, n := range counts {
			if n < 135 || n > 165 {
				t.Errorf("%s: %d of 600", name, n)
			}
		}
	})
}

// When one refuses its connections and each is retried elsewhere, the others get
// equal shares: its follower does not get its share on top.
func TestRoundRobinSpreadsRetries(t *testing.T) {
	p := New(poolSpec("round-robin", 100, 100, 100), nil)
	counts := map[string]int{}
	for range 300 {
		lease := acquire(t, p, flow(1))
		if tried := lease.Backend(); tried.Name() == "b0" {
			lease.Release()
			var err error
			if lease, err = p.Acquire(flow(1), func(b *Backend) bool { return b == tried }); err != nil {
				t.Fatal(err)
			}
		}
		counts[lease.Backend().Name()]++
		lease.Release()
	}
	if counts["b1"] != 150 || counts["b2"] != 150 {
		t.Errorf("%v", counts)
	}
}

// The same when the heavy one is full: what is left is shared as if it were not
// there.
func TestRoundRobinSpreadsOverflow(t *testing.T) {
	spec := poolSpec("round-robin", 5, 1, 1)
	spec.Backends[0].MaxConnections = 1
	p := New(spec, nil)
	for p.Backends()[0].Active() == 0 {
		acquire(t, p, flow(1))
	}
	counts := map[string]int{}
	for range 300 {
		counts[touch(t, p, flow(1))]++
	}
	if counts["b1"] != 150 || counts["b2"] != 150 {
		t.Errorf("%v", counts)
	}
}

func TestRoundRobinIsExactUnderConcurrency(t *testing.T) {
	p := New(poolSpec("round-robin", 5, 3, 1), nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 9 * 250 {
				lease, err := p.Acquire(flow(1), nil)
				if err != nil {
					t.Error(err)
				}
				lease.Release()
			}
		})
	}
	all.Wait()
	for i, want := range []uint64{5000, 3000, 1000} {
		if got := p.Backends()[i].Total(); got != want {
			t.Errorf("b%d: %d, want %d", i, got, want)
		}
	}
}

// In any stretch of the cycle no two members differ by more than a turn each from
// their proportion, and the whole cycle is exact.
func TestRoundRobinIsSmooth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 6).Draw(t, "weights")
		p := New(poolSpec("round-robin", weights...), nil).view.Load().strategies[0].picker.(*roundRobin)
		n := len(p.cycle)
		from := rapid.IntRange(0, n-1).Draw(t, "from")
		length := rapid.IntRange(1, n).Draw(t, "length")
		counts := make([]float64, len(weights))
		for i := range length {
			counts[p.cycle[(from+i)%n]]++
		}
		for i := range weights {
			for j := range i {
				a, b := float64(weights[i]), float64(weights[j])
				if d := counts[i]/a - counts[j]/b; d > 1/a+1/b || -d > 1/a+1/b {
					t.Errorf("%d and %d: %v and %v turns of %d", weights[i], weights[j], counts[i], counts[j], length)
				}
			}
		}
		whole := make([]uint64, len(weights))
		for _, i := range p.cycle {
			whole[i]++
		}
		for i := range whole {
			if whole[i]*uint64(weights[0]) != whole[0]*uint64(weights[i]) {
				t.Errorf("weights %v, turns %v", weights, whole)
			}
		}
	})
}

func TestRoundRobinOfHugeWeights(t *testing.T) {
	exact := New(poolSpec("round-robin", maxWeight, 1), nil)
	if n := len(picker[*roundRobin](t, exact).cycle); n != maxCycle {
		t.Errorf("65535 and 1: cycle of %d", n)
	}
	spec := poolSpec("round-robin")
	for i := range 1024 {
		spec.Backends = append(spec.Backends, backendSpec(i, maxWeight-i))
	}
	spec.Backends[7].Weight = 1
	p := picker[*roundRobin](t, New(spec, nil))
	if n := len(p.cycle); n > maxCycle+1024 {
		t.Errorf("cycle of %d", n)
	}
	for i, w := range p.weights {
		if ideal := float64(p.members[i].Weight) * maxCycle / (1023.5 * maxWeight); w == 0 || float64(w) > ideal+2 {
			t.Errorf("weight %d: %d turns", p.members[i].Weight, w)
		}
	}
}
