package balance

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// used returns whom 300 flows go to.
func used(tb testing.TB, p *Pool) (names []string) {
	tb.Helper()
	for i := range 300 {
		lease, err := p.Acquire(flow(i), nil)
		if errors.Is(err, ErrNoBackend) {
			return nil
		}
		if err != nil {
			tb.Fatal(err)
		}
		if name := lease.Backend().Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		lease.Release()
	}
	slices.Sort(names)
	return names
}

// Who is in use, for what is wrong with whom. b4 and b5 are backups.
func TestTiersAndPanic(t *testing.T) {
	type wrong map[int]Flag
	for _, c := range []struct {
		name    string
		percent int
		wrong   wrong
		want    []string
		panic   bool
		backup  bool
	}{
		{"all well", 50, nil, []string{"b0", "b1", "b2", "b3"}, false, false},
		{"just enough", 50, wrong{0: Down, 1: Ejected}, []string{"b2", "b3"}, false, false},
		{"too few", 50, wrong{0: Down, 1: Ejected, 2: Down | Ejected}, []string{"b0", "b1", "b2", "b3"}, true, false},
		{"too few, panic off", 0, wrong{0: Down, 1: Ejected, 2: Down | Ejected}, []string{"b3"}, false, false},
		{"one of four at 25", 25, wrong{0: Down, 1: Down, 2: Down}, []string{"b3"}, false, false},
		{"one of four at 26", 26, wrong{0: Down, 1: Down, 2: Down}, []string{"b0", "b1", "b2", "b3"}, true, false},
		{"the operator's do not count", 50, wrong{0: Drained, 1: Maint, 2: Down}, []string{"b3"}, false, false},
		{"and stay out", 60, wrong{0: Drained, 1: Maint, 2: Down}, []string{"b2", "b3"}, true, false},
		{"nor the unresolved", 60, wrong{0: Unresolved, 1: Unresolved | Down, 2: Down}, []string{"b2", "b3"}, true, false},
		{"nor a standby", 60, wrong{0: Standby, 1: Standby, 2: Standby}, []string{"b3"}, false, false},
		{"which is sent nothing", 100, wrong{0: Standby, 1: Standby, 2: Down}, []string{"b2", "b3"}, true, false},
		{"no primary", 50, wrong{0: Down, 1: Down, 2: Down, 3: Down}, []string{"b4", "b5"}, false, true},
		{"no primary, one backup", 60, wrong{0: Down, 1: Down, 2: Down, 3: Down, 4: Down}, []string{"b4", "b5"}, true, true},
		{"nobody", 1, wrong{0: Down, 1: Down, 2: Down, 3: Down, 4: Down, 5: Down}, []string{"b0", "b1", "b2", "b3"}, true, false},
		{"nobody, primaries drained", 1, wrong{0: Drained, 1: Drained, 2: Drained, 3: Drained, 4: Down, 5: Down}, []string{"b4", "b5"}, true, true},
		{"nobody, panic off", 0, wrong{0: Down, 1: Down, 2: Down, 3: Down, 4: Down, 5: Down}, nil, false, false},
		{"nobody at all", 100, wrong{0: Maint, 1: Maint, 2: Maint, 3: Maint, 4: Maint, 5: Maint}, nil, false, false},
		{"a hundred", 100, wrong{0: Down}, []string{"b0", "b1", "b2", "b3"}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := poolSpec("round-robin", equal(6)...)
			spec.Panic = c.percent
			spec.Backends[4].Backup, spec.Backends[5].Backup = true, true
			p := New(spec, nil)
			for i, f := range c.wrong {
				p.SetFlag(spec.Backends[i].id(), f, true)
			}
			if got := used(t, p); !slices.Equal(got, c.want) {
				t.Errorf("used %v, want %v", got, c.want)
			}
			s := p.Snapshot()
			if s.Panic != c.panic || p.Panicking() != c.panic || s.Backup != c.backup || p.OnBackup() != c.backup {
				t.Errorf("panic %v, backup %v", s.Panic, s.Backup)
			}
			if s.Eligible != len(c.want) {
				t.Errorf("%d eligible, want %d", s.Eligible, len(c.want))
			}
			for i, f := range c.wrong {
				p.SetFlag(spec.Backends[i].id(), f, false)
			}
			if p.Panicking() || p.OnBackup() {
				t.Error("not over when all are well")
			}
		})
	}
}

// In panic everybody is needed: no trials, no slow start.
func TestPanicGoesBeforeTrialsAndSlowStart(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		spec := poolSpec(algorithm, 100, 100, 100)
		spec.Panic, spec.SlowStart = 70, time.Hour
		p := New(spec, nil)
		p.SetTrial(spec.Backends[0].id(), 0)
		p.SetFlag(spec.Backends[1].id(), Down, true)
		p.SetFlag(spec.Backends[1].id(), Down, false)
		p.SetFlag(spec.Backends[2].id(), Down, true)
		if v := p.view.Load(); !v.panic || v.lane != nil || len(v.strategies[0].members) != 3 {
			t.Errorf("panic %v, %d members for the algorithm", v.panic, len(v.strategies[0].members))
		}
		p.Update(Spec{Algorithm: algorithm})
	})
}

func TestSetWeight(t *testing.T) {
	spec := poolSpec("round-robin", 1, 1)
	p := New(spec, nil)
	id := spec.Backends[0].id()
	counts := func() (n [2]int) {
		for i := range 400 {
			n[touch(t, p, flow(i))[1]-'0']++
		}
		return n
	}
	if !p.SetWeight(id, 3) || p.SetWeight(id, 3) {
		t.Error("changed once, that is to say")
	}
	if got := counts(); got != [2]int{300, 100} {
		t.Errorf("3 to 1: %v", got)
	}
	p.Update(spec) // survives a reload
	if b := p.Snapshot().Backends[0]; b.Weight != 3 || b.Configured != 1 {
		t.Errorf("weight %d, configured %d", b.Weight, b.Configured)
	}
	p.SetWeight(id, 0)
	if got := counts(); got != [2]int{0, 400} {
		t.Errorf("0: %v", got)
	}
	if !p.SetWeight(id, -1) || p.Backends()[0].Weight() != 1 {
		t.Error("-1 restores")
	}
	p.SetWeight(id, 1<<20)
	if w := p.Backends()[0].Weight(); w != maxWeight {
		t.Errorf("bounded: %d", w)
	}
	if p.SetWeight(BackendID{Name: "nobody"}, 1) {
		t.Error("unknown")
	}
	p.Update(Spec{Algorithm: "first"})
	p.Update(spec)
	if w := p.Backends()[0].Weight(); w != 1 {
		t.Errorf("it went and came back: %d", w)
	}
}

// Half-open: exactly n flows, promptly, whatever the algorithm; those without a
// verdict are given back.
func TestTrials(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		spec := poolSpec(algorithm, 100, 100, 100)
		p := New(spec, nil)
		b, id := p.Backends()[0], spec.Backends[0].id()
		p.SetFlag(id, Ejected, true)
		if !p.SetTrial(id, 2) || p.SetTrial(BackendID{}, 2) {
			t.Error("known, and unknown")
		}
		p.SetFlag(id, Ejected, false)
		trials := func(n int) (leases []Lease) {
			t.Helper()
			for i := range 50 {
				lease := acquire(t, p, flow(i))
				if lease.Backend() == b {
					leases = append(leases, lease)
				} else {
					lease.Release()
				}
			}
			if len(leases) != n {
				t.Fatalf("%d trials, want %d", len(leases), n)
			}
			return leases
		}
		two := trials(2)
		if left := p.Snapshot().Backends[0].Trials; left != 0 {
			t.Errorf("%d left", left)
		}
		two[0].Report(true, time.Millisecond)
		two[0].Release()
		two[1].Release()
		one := trials(1) // the other had a verdict
		one[0].Report(false, 0)
		one[0].Release()
		trials(0)
		only := func(o *Backend) bool { return o != b }
		if _, err := p.Acquire(flow(1), only); !errors.Is(err, ErrBusy) {
			t.Errorf("trials are out: %v", err)
		}
		p.SetTrial(id, -1)
		if lease, err := p.Acquire(flow(1), only); err != nil || lease.Backend() != b {
			t.Errorf("a member again: %v", err)
		} else {
			lease.Release()
		}
		if p.Active() != 0 {
			t.Errorf("%d active", p.Active())
		}
	})
}

// After its trials a backend starts slowly.
func TestTrialsThenSlowStart(t *testing.T) {
	spec := poolSpec("least-conn", 100, 100)
	spec.SlowStart = time.Hour
	p := New(spec, nil)
	p.SetTrial(spec.Backends[0].id(), 1)
	p.SetTrial(spec.Backends[0].id(), -1)
	if share := p.Snapshot().Backends[0].Share; share != 5 {
		t.Errorf("share %d %%", share)
	}
	p.Update(Spec{Algorithm: "first"})
}
