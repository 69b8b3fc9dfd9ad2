package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/poise-lb/poise/l4"
)

// slots returns the names along the table.
func slots(tb testing.TB, p *Pool) []string {
	tb.Helper()
	own := picker[*maglev](tb, p)
	all := make([]string, len(own.table))
	for slot, i := range own.table {
		all[slot] = own.members[i].Name()
	}
	return all
}

// moved counts the slots that differ, of one owner and of all the others.
func moved(before, after []string, owner string) (of, others int) {
	for i := range before {
		switch {
		case before[i] == after[i]:
		case before[i] == owner:
			of++
		default:
			others++
		}
	}
	return of, others
}

// Case O-09: the map is a function of the set.
func TestMaglevIgnoresOrderAndHistory(t *testing.T) {
	weights := []int{100, 100, 50, 25, 100}
	spec := poolSpec("maglev", weights...)
	p := New(spec, nil)
	before := slots(t, p)
	same := func(what string, p *Pool) {
		t.Helper()
		if !slices.Equal(before, slots(t, p)) {
			t.Errorf("%s: the table changed", what)
		}
	}

	shuffled := poolSpec("maglev", weights...)
	for range 5 {
		rand.Shuffle(5, func(i, j int) {
			shuffled.Backends[i], shuffled.Backends[j] = shuffled.Backends[j], shuffled.Backends[i]
		})
		p.Update(shuffled)
		same("shuffled", p)
	}
	slices.Reverse(spec.Backends)
	spec.Name = "another"
	same("another instance, reversed", New(spec, nil))

	p.Update(Spec{Algorithm: "maglev", Backends: spec.Backends[1:]})
	p.Update(spec)
	same("removed and put back", p)
	p.SetFlag(spec.Backends[2].id(), Down, true)
	p.SetFlag(spec.Backends[0].id(), Ejected, true)
	p.SetFlag(spec.Backends[2].id(), Down, false)
	p.SetFlag(spec.Backends[0].id(), Ejected, false)
	same("down and up again", p)
	for i := range spec.Backends {
		spec.Backends[i].Weight *= 4
	}
	p.Update(spec)
	same("the same proportions", p)
}

// Case O-09 (d): all keys of the removed one move, and at most 2 % of the others.
func TestMaglevDisruption(t *testing.T) {
	for name, weights := range map[string][]int{"equal": equal(5), "weighted": {100, 50, 100, 200, 25}} {
		for gone := range weights {
			spec := poolSpec("maglev", weights...)
			p := New(spec, nil)
			before := slots(t, p)
			owned := 0
			owner := spec.Backends[gone].Name
			for _, slot := range before {
				if slot == owner {
					owned++
				}
			}
			p.SetFlag(spec.Backends[gone].id(), Down, true)
			of, others := moved(before, slots(t, p), owner)
			share := float64(others) / float64(maglevSlots-owned)
			t.Logf("%s without %s: %d of its %d slots and %.2f %% of the others move", name, owner, of, owned, 100*share)
			if of != owned || share > 0.02 {
				t.Errorf("%s without %s: %d of %d, %.2f %% of the others", name, owner, of, owned, 100*share)
			}
		}
	}
}

// A refused member's keys go elsewhere, everybody else's stay; the same ones each
// time, and not all to one neighbour.
func TestMaglevSkipsSteadily(t *testing.T) {
	p := New(poolSpec("maglev", equal(5)...), nil)
	b0 := p.Backends()[0]
	refill := map[string]int{}
	for i := range 5000 {
		own := touch(t, p, flow(i))
		for range 2 {
			lease, err := p.Acquire(flow(i), func(b *Backend) bool { return b == b0 })
			if err != nil {
				t.Fatal(err)
			}
			if own != "b0" && lease.Backend().Name() != own {
				t.Fatalf("client %d moved from %s", i, own)
			}
			if own == "b0" {
				refill[lease.Backend().Name()]++
			}
			lease.Release()
		}
	}
	for name, n := range refill {
		if n%2 != 0 || n < 2*150 || n > 2*350 {
			t.Errorf("%s got %d of about 250 clients of b0", name, n/2)
		}
	}
}

func TestMaglevShares(t *testing.T) {
	for _, weights := range [][]int{{1}, {100, 100, 100}, {5, 1, 1}, {1, 2, 3, 4}, {maxWeight, 1}, equal(655)} {
		own := picker[*maglev](t, New(poolSpec("maglev", weights...), nil))
		counts, sum := make([]float64, len(weights)), 0.0
		for _, i := range own.table {
			counts[i]++
		}
		for _, w := range weights {
			sum += float64(w)
		}
		for i, m := range own.members {
			if want := maglevSlots * float64(m.Weight) / sum; math.Abs(counts[i]-want) > 1 {
				t.Errorf("%s of %v: %v slots, want %.1f", m.Name(), weights, counts[i], want)
			}
		}
	}
}

// With the table even and the hash good, clients spread as by chance.
func TestMaglevSpreadsClients(t *testing.T) {
	p := New(poolSpec("maglev", 4, 3, 2, 1), nil)
	counts := map[string]int{}
	for i := range 100_000 {
		counts[touch(t, p, flow(i))]++
	}
	fits(t, counts, map[string]float64{"b0": .4, "b1": .3, "b2": .2, "b3": .1})
}

func TestMaglevKey(t *testing.T) {
	from := func(client string) l4.Flow { return l4.Flow{Client: netip.MustParseAddrPort(client)} }
	for _, c := range []struct {
		hash HashSpec
		a, b string
		same bool
	}{
		{HashSpec{}, "10.0.0.1:1", "10.0.0.1:2", true},
		{HashSpec{}, "10.0.0.1:1", "10.0.0.2:1", false},
		{HashSpec{}, "10.0.0.1:1", "10.0.0.1:2", true},
		{HashSpec{}, "10.0.0.1:1", "[::ffff:10.0.0.1]:2", true},
		{HashSpec{Port: true}, "10.0.0.1:1", "10.0.0.1:2", false},
		{HashSpec{Port: true}, "10.0.0.1:1", "10.0.0.1:1", true},
		{HashSpec{Mask4: 24}, "10.0.0.1:1", "10.0.0.200:1", true},
		{HashSpec{Mask4: 24}, "10.0.0.1:1", "10.0.1.1:1", false},
		{HashSpec{Mask4: 24}, "10.0.0.1:1", "[::ffff:10.0.0.9]:2", true},
		{HashSpec{Mask4: 32, Mask6: 128}, "10.0.0.1:1", "10.0.0.2:1", false},
		{HashSpec{Mask4: 24}, "[2001:db8::1]:1", "[2001:db8::2]:1", false},
		{HashSpec{Mask6: 64}, "[2001:db8::1]:1", "[2001:db8::ffff]:1", true},
		{HashSpec{Mask6: 64}, "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		{HashSpec{Mask6: 64, Port: true}, "[2001:db8::1]:1", "[2001:db8::2]:2", false},
		{HashSpec{}, "[fe80::1%eth0]:1", "[fe80::1%eth1]:1", true},
	} {
		p := &maglev{hash: c.hash}
		if same := p.key(from(c.a)) == p.key(from(c.b)); same != c.same {
			t.Errorf("%+v: %s and %s the same: %v", c.hash, c.a, c.b, same)
		}
	}
	if p := New(poolSpec("maglev", equal(5)...), nil); touch(t, p, l4.Flow{}) == "" {
		t.Error("a flow without an address went nowhere")
	}
}

// One source sends everything: with a bound nobody exceeds it at any moment.
func TestMaglevBoundedLoad(t *testing.T) {
	for _, bound := range []float64{1, 1.25, 2} {
		for _, weights := range [][]int{equal(5), {4, 3, 2, 1}} {
			t.Run(fmt.Sprintf("%v of %v", bound, weights), func(t *testing.T) {
				spec := poolSpec("maglev", weights...)
				spec.Hash.Bound = bound
				p := New(spec, nil)
				sum := 0.0
				for _, w := range weights {
					sum += float64(w)
				}
				for load := 1; load <= 500; load++ {
					acquire(t, p, flow(1))
					for i, b := range p.Backends() {
						limit := math.Ceil(bound * float64(load) * float64(weights[i]) / sum)
						if float64(b.Active()) > limit {
							t.Fatalf("at load %d: %s has %d, over %v", load, b.Name(), b.Active(), limit)
						}
					}
				}
			})
		}
	}
}

// Under the bound everybody goes home: many clients, little imbalance.
func TestMaglevBoundLeavesTheRestAlone(t *testing.T) {
	spec := poolSpec("maglev", equal(5)...)
	free := New(spec, nil)
	spec.Hash.Bound = 2
	bound := New(spec, nil)
	away := 0
	for i := range 2000 {
		a, b := acquire(t, free, flow(i)), acquire(t, bound, flow(i))
		if a.Backend().Name() != b.Backend().Name() {
			away++
		}
	}
	if away > 20 { // only while there are but a few
		t.Errorf("%d of 2000 are not at home", away)
	}
}

// A bound must not refuse what is not refused: when skip leaves only the one that
// is over it, that one it is.
func TestMaglevBoundYieldsToSkip(t *testing.T) {
	spec := poolSpec("maglev", equal(3)...)
	spec.Hash.Bound = 1.1
	p := New(spec, nil)
	only := p.Backends()[1]
	only.load.Active.Store(1000)
	lease, err := p.Acquire(flow(1), func(b *Backend) bool { return b != only })
	if err != nil || lease.Backend() != only {
		t.Errorf("got %v, %v", lease.Backend(), err)
	}
}
