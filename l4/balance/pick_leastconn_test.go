package balance

import "testing"

func TestLeastConnTakesTheLeastLoaded(t *testing.T) {
	for _, c := range []struct {
		weights []int
		loads   []int64
		want    string
	}{
		{[]int{100, 100, 100}, []int64{3, 1, 2}, "b1"},
		{[]int{100, 100, 100}, []int64{0, 1, 2}, "b0"},
		{[]int{2, 1}, []int64{2, 1}, "b0"},         // 3/2 against 2
		{[]int{2, 1}, []int64{4, 1}, "b1"},         // 5/2 against 2
		{[]int{maxWeight, 1}, []int64{0, 0}, "b0"}, // idle: the heavy one
		{[]int{maxWeight, maxWeight - 1}, []int64{1 << 40, 1 << 40}, "b0"},
	} {
		p := New(poolSpec("least-conn", c.weights...), nil)
		for i, load := range c.loads {
			p.Backends()[i].load.Active.Store(load)
		}
		for range 5 {
			if got := touch(t, p, flow(1)); got != c.want {
				t.Errorf("weights %v, loads %v: %s, want %s", c.weights, c.loads, got, c.want)
			}
		}
	}
}

func TestLeastConnFillsByWeight(t *testing.T) {
	p := New(poolSpec("least-conn", 300, 200, 100), nil)
	for i := range 600 {
		acquire(t, p, flow(i))
	}
	for i, want := range []int64{300, 200, 100} {
		if got := p.Backends()[i].Active(); got != want {
			t.Errorf("b%d: %d, want %d", i, got, want)
		}
	}
}

// An idle pool is all ties: short flows spread as evenly as a round robin, also
// over the idle part of a pool, also after a reload.
func TestLeastConnRotatesTies(t *testing.T) {
	p := New(poolSpec("least-conn", equal(8)...), nil)
	p.Backends()[2].load.Active.Store(5)
	p.Backends()[3].load.Active.Store(5)
	for i := range 600 {
		if i%50 == 0 {
			p.Update(poolSpec("least-conn", equal(8)...))
			p.SetFlag(p.Backends()[2].ID(), Down, i%100 == 0)
		}
		touch(t, p, flow(1))
	}
	for i, b := range p.Backends() {
		want := uint64(100)
		if i == 2 || i == 3 {
			want = 0
		}
		if b.Total() != want {
			t.Errorf("b%d: %d, want %d", i, b.Total(), want)
		}
	}
}

// Many balancers that start at once must not all begin with the same backend.
func TestLeastConnStartsAnywhere(t *testing.T) {
	rnd := seeded(t)
	counts := map[string]int{}
	for range 3000 {
		counts[touch(t, New(poolSpec("least-conn", 1, 1, 1), rnd), flow(1))]++
	}
	fits(t, counts, map[string]float64{"b0": 1. / 3, "b1": 1. / 3, "b2": 1. / 3})
}

// Case O-08, first part: 30 connections, then ten times a reload and one more.
func TestLeastConnSurvivesReload(t *testing.T) {
	p := New(poolSpec("least-conn", 100, 100, 100), nil)
	for i := range 30 {
		acquire(t, p, flow(i))
	}
	for _, b := range p.Backends() {
		if b.Active() != 10 {
			t.Errorf("%s: %d", b.Name(), b.Active())
		}
	}
	for i := range 10 {
		p.Update(poolSpec("least-conn", 100, 100, 100))
		acquire(t, p, flow(i))
	}
	for _, b := range p.Backends() {
		if b.Active() < 13 || b.Active() > 14 {
			t.Errorf("%s: %d of 40", b.Name(), b.Active())
		}
	}
}

func TestFirstFillsInOrder(t *testing.T) {
	spec := poolSpec("first", 1, 100, 50)
	for i := range spec.Backends {
		spec.Backends[i].MaxConnections = 2
	}
	p := New(spec, nil)
	var leases []Lease
	for i, want := range []string{"b0", "b0", "b1", "b1", "b2"} {
		leases = append(leases, acquire(t, p, flow(i)))
		if got := leases[i].Backend().Name(); got != want {
			t.Errorf("flow %d: %s, want %s", i, got, want)
		}
	}
	leases[1].Release()
	if got := touch(t, p, flow(1)); got != "b0" {
		t.Errorf("room on b0, got %s", got)
	}
	p.Update(Spec{Algorithm: "first", Backends: []BackendSpec{spec.Backends[2], spec.Backends[0]}})
	if got := touch(t, p, flow(1)); got != "b2" {
		t.Errorf("the order changed, got %s", got)
	}
}
