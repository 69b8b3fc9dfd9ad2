package balance

import (
	"math/bits"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/poise-lb/poise/l4"
)

// path is another data path as simple as can be: it chooses by the plan that it has
// installed and counts in the words of that plan, and nothing else.
type path struct {
	plan  Plan
	flows []*Load // open
}

// choose returns the member for a flow, full ones passed over where the algorithm does so;
// nil if the flow has to come to the pool.
func (k *path) choose(f l4.Flow) *Load {
	best := -1
	switch {
	case k.plan.Why != "" || len(k.plan.Members) == 0:
		return nil
	case k.plan.Algorithm == "maglev":
		slot, _ := bits.Mul64(l4.HashAddr(f.Client.Addr(), 0, k.plan.Seed), uint64(len(k.plan.Order)))
		best = int(k.plan.Order[slot])
	case k.plan.Algorithm == "first":
		best = slices.IndexFunc(k.plan.Members, func(m PlanMember) bool { return !m.Load.full() })
	case k.plan.Algorithm == "least-conn":
		for i, m := range k.plan.Members {
			if !m.Load.full() && (best < 0 || lighter(m, k.plan.Members[best])) {
				best = i
			}
		}
	}
	if best < 0 || k.plan.Members[best].Load.full() {
		return nil
	}
	return k.plan.Members[best].Load
}

func lighter(a, b PlanMember) bool {
	x := uint64(a.Load.Active.Load()+1) * uint64(b.Weight)
	y := uint64(b.Load.Active.Load()+1) * uint64(a.Weight)
	return x < y || x == y && a.Load.Picked.Load() < b.Load.Picked.Load()
}

// Random lives of a pool that shares its memory with another data path, which installs
// plans late: counts are exact, limits hold, both choose alike by the same plan, and no
// backend is forgotten that a flow may still be added to.
func TestPoolWithAnotherPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := shared{}
		draw := func() Spec {
			spec := drawSpec(t)
			spec.Algorithm = rapid.SampledFrom([]string{"least-conn", "first", "maglev"}).Draw(t, "planned")
			spec.Hash.Bound, spec.Queue.Size = 0, 1
			return spec
		}
		p := NewIn(m.memory(), draw(), nil)
		told := 0
		p.Watch(func() { told++ })
		version := p.Plan().Version
		var k path
		var leases []Lease
		number := 0
		t.Repeat(map[string]func(*rapid.T){
			"update": func(*rapid.T) { p.Update(draw()) },
			"flag": func(t *rapid.T) {
				p.SetFlag(drawBackend(t).id(), Down, rapid.Bool().Draw(t, "on"))
			},
			"weight":  func(t *rapid.T) { p.SetWeight(drawBackend(t).id(), rapid.IntRange(-1, 3).Draw(t, "weight")) },
			"trial":   func(t *rapid.T) { p.SetTrial(drawBackend(t).id(), rapid.IntRange(-1, 2).Draw(t, "trials")) },
			"time":    func(*rapid.T) { p.nextStep() },
			"install": func(*rapid.T) { k.plan = p.Plan(); p.Installed(k.plan.Version) },
			"acquire": func(*rapid.T) {
				number++
				if l, err := p.Acquire(flow(number%20), nil); err == nil {
					leases = append(leases, l)
				}
			},
			"adopt": func(t *rapid.T) {
				id := drawBackend(t).id()
				if l := p.Adopt(id); l.Backend() != nil {
					if l.Backend().ID() != id {
						t.Fatalf("adopted %v for %v", l.Backend().ID(), id)
					}
					leases = append(leases, l)
				}
			},
			"release": func(t *rapid.T) {
				if len(leases) > 0 {
					i := rapid.IntRange(0, len(leases)-1).Draw(t, "lease")
					leases[i].Release()
					leases = slices.Delete(leases, i, i+1)
				}
			},
			"flow": func(t *rapid.T) {
				number++
				f := flow(number % 20)
				load := k.choose(f)
				if load == nil {
					return
				}
				if v := p.view.Load(); v.version == k.plan.Version && load.Failing.Load() == 0 {
					own := v.strategies[0].picker.Pick(f, full).load
					same := own == load
					if k.plan.Algorithm == "least-conn" { // which of equal ones begins is drawn
						same = same || !lighter(k.of(load), k.of(own)) && !lighter(k.of(own), k.of(load))
						load = own
					}
					if !same {
						t.Fatalf("%s: the paths choose differently", k.plan.Algorithm)
					}
				}
				load.Active.Add(1)
				k.flows = append(k.flows, load)
			},
			"end": func(t *rapid.T) {
				if len(k.flows) > 0 {
					i := rapid.IntRange(0, len(k.flows)-1).Draw(t, "flow")
					k.flows[i].Active.Add(-1)
					k.flows = slices.Delete(k.flows, i, i+1)
					p.Room()
				}
			},
			"": func(t *rapid.T) {
				if now := p.Plan().Version; uint64(told) != now-version {
					t.Fatalf("%d plans, told of %d", now-version, told)
				}
				mine, other := map[*Load]int64{}, map[*Load]int64{}
				for i := range leases {
					mine[leases[i].Backend().load]++
				}
				for _, l := range k.flows {
					other[l]++
				}
				kept := map[*Load]bool{}
				for _, b := range append(p.Backends(), p.Leaving()...) {
					kept[b.load] = true
				}
				for id, l := range m {
					if l.Active.Load() != mine[l]+other[l] || l.Mine.Load() != mine[l] {
						t.Fatalf("%v: %d active, %d mine; want %d and %d", id, l.Active.Load(), l.Mine.Load(), mine[l]+other[l], mine[l])
					}
					planned := slices.ContainsFunc(k.plan.Members, func(m PlanMember) bool { return m.Load == l })
					if (planned || mine[l]+other[l] > 0) && !kept[l] {
						t.Fatalf("%v is forgotten", id)
					}
				}
			},
		})
		p.Update(Spec{Algorithm: "first"})
		for i := range leases {
			leases[i].Release()
		}
		for _, l := range k.flows {
			l.Active.Add(-1)
		}
		if p.Installed(p.Plan().Version); len(p.Leaving()) != 0 {
			t.Fatalf("%v are left", names(p.Leaving()))
		}
	})
}

func (k *path) of(l *Load) PlanMember {
	return k.plan.Members[slices.IndexFunc(k.plan.Members, func(m PlanMember) bool { return m.Load == l })]
}

// What decides besides the algorithm is told, and ewma is not taken for the p2c it is made of.
func TestPlanSaysWhyNot(t *testing.T) {
	for _, c := range []struct {
		change func(*Spec)
		want   Aside
	}{
		{func(*Spec) {}, ""},
		{func(s *Spec) { s.AB = &AB{A: "first", B: "random", Split: 0.5} }, AsideAB},
		{func(s *Spec) { s.Sticky = &Sticky{TTL: time.Hour, Size: 10} }, AsideSticky},
		{func(s *Spec) { s.Algorithm = "ewma" }, AsideBalance},
		{func(s *Spec) { s.Algorithm = "fastest" }, AsideBalance},
		{func(s *Spec) { s.Algorithm = "adaptive" }, AsideBalance},
	} {
		spec := poolSpec("p2c", 3, 2, 1)
		c.change(&spec)
		if got := New(spec, nil).Plan(); got.Why != c.want || (got.Members == nil) != (c.want != "") {
			t.Errorf("%s: %q with %d members, want %q", spec.Algorithm, got.Why, len(got.Members), c.want)
		}
	}
	spec := poolSpec("random", 3, 2, 1)
	p := New(spec, nil)
	if plan := p.Plan(); len(plan.Tickets) != 3 || plan.Tries != 6 {
		t.Errorf("tickets %v of %d", plan.Tickets, plan.Tries)
	}
	p.SetTrial(spec.Backends[0].id(), 1)
	if got := p.Plan().Why; got != AsideTrial {
		t.Errorf("half-open: %q", got)
	}
	if got := New(poolSpec("round-robin", 2, 1), nil).Plan().Order; len(got) != 3 {
		t.Errorf("the cycle is %v", got)
	}
}

// Each step of a slow start is a plan that the watcher hears of, without a call from it.
func TestWatchHearsSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := poolSpec("maglev", 100, 100)
		spec.SlowStart = 20 * time.Second
		p := New(spec, nil)
		id := spec.Backends[0].id()
		p.SetFlag(id, Down, true)
		heard := 0
		p.Watch(func() { heard++ })
		p.SetFlag(id, Down, false)
		before := p.Plan()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		after := p.Plan()
		if heard < rampSteps || slices.Equal(before.Order, after.Order) || after.Version != before.Version+uint64(heard-1) {
			t.Errorf("heard %d, versions %d to %d", heard, before.Version, after.Version)
		}
		p.Watch(nil)
		p.SetFlag(id, Down, true)
		if heard != int(after.Version-before.Version)+1 {
			t.Error("heard after the end")
		}
	})
}

// Who waits is served when flows of the other path end, and what fails there counts.
func TestRoomAndReports(t *testing.T) {
	spec := poolSpec("least-conn", 100)
	spec.Backends[0].MaxConnections = 1
	spec.Queue.Size = 1
	m := shared{}
	p := NewIn(m.memory(), spec, nil)
	l := m[spec.Backends[0].id()]
	l.Active.Add(1)
	var granted []int
	c := newClient(1, &granted)
	if at, err := p.Wait(&c.Waiter); at != 1 || err != nil {
		t.Fatal(at, err)
	}
	l.Active.Add(-1)
	p.Room()
	if len(granted) != 1 || l.Active.Load() != 1 || p.Waiting() != 0 {
		t.Errorf("granted %v, active %d", granted, l.Active.Load())
	}
	b := p.Backends()[0]
	b.Report(false, 0)
	if got := l.burden(&p.clock); got != 2 {
		t.Errorf("the burden is %d", got)
	}
	b.Report(true, time.Millisecond)
	b.Report(true, time.Millisecond)
	if got := l.burden(&p.clock); got != 1 {
		t.Errorf("well again the burden is %d", got)
	}
}

func TestAdopt(t *testing.T) {
	spec := poolSpec("first", 100)
	spec.Backends[0].MaxConnections = 1
	p := New(spec, nil)
	id := spec.Backends[0].id()
	p.SetFlag(id, Maint, true)
	one, two := p.Adopt(id), p.Adopt(id)
	b := p.Backends()[0]
	if b.Active() != 2 || b.Total() != 2 || two.Backend() != b {
		t.Errorf("active %d of %d", b.Active(), b.Total())
	}
	p.Update(Spec{Algorithm: "first"})
	three := p.Adopt(id) // it is leaving, and still has flows
	one.Release()
	two.Release()
	three.Release()
	if none := p.Adopt(id); b.Active() != 0 || len(p.Leaving()) != 0 || none.Backend() != nil {
		t.Errorf("active %d, leaving %d", b.Active(), len(p.Leaving()))
	}
}
