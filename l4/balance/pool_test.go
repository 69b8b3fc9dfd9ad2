package balance

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func names(backends []*Backend) (all []string) {
	for _, b := range backends {
		all = append(all, b.Name())
	}
	return all
}

func TestUpdateKeepsWhoStays(t *testing.T) {
	p := New(poolSpec("least-conn", 100, 100, 100), nil)
	before := p.Backends()
	p.SetFlag(before[1].ID(), Down, true)
	lease := acquire(t, p, flow(1))

	spec := Spec{Name: "renamed", Algorithm: "p2c", Backends: []BackendSpec{
		backendSpec(3, 7), backendSpec(2, 5), backendSpec(1, 100), backendSpec(0, 100),
	}}
	spec.Backends[1].Backup = true
	spec.Backends[1].MaxConnections = 9
	spec.Backends[2].Initial = Ejected // it stays: not initial
	if removed := p.Update(spec); removed != nil {
		t.Errorf("removed %v", names(removed))
	}
	after := p.Backends()
	if got := names(after); !slices.Equal(got, []string{"b3", "b2", "b1", "b0"}) {
		t.Errorf("order %v", got)
	}
	if after[1] != before[2] || after[2] != before[1] || after[3] != before[0] {
		t.Error("a backend that stays is another one")
	}
	if b := after[1]; b.Weight() != 5 || !b.Backup() || b.MaxConnections() != 9 {
		t.Errorf("b2: weight %d, backup %v, limit %d", b.Weight(), b.Backup(), b.MaxConnections())
	}
	if after[2].Flags() != Down {
		t.Errorf("b1: %v", after[2].Flags())
	}
	if p.Active() != 1 || lease.Backend().Active() != 1 {
		t.Errorf("%d active", p.Active())
	}
	if p.Name() != "pool" || p.Spec().Name != "pool" || after[0].PoolName() != "pool" {
		t.Error("the name changed")
	}
}

func TestUpdateRemoves(t *testing.T) {
	p := New(poolSpec("first", 100, 100, 100), nil)
	b0 := p.Backends()[0]
	lease := acquire(t, p, flow(1))
	spec := poolSpec("first", 100, 100, 100)
	gone := Spec{Name: "pool", Algorithm: "first", Backends: spec.Backends[2:]}
	if removed := names(p.Update(gone)); !slices.Equal(removed, []string{"b0", "b1"}) {
		t.Errorf("removed %v", removed)
	}
	if b0.Flags() != Removed || p.SetFlag(b0.ID(), Down, true) {
		t.Errorf("removed: %v", b0.Flags())
	}
	if got := names(p.Leaving()); !slices.Equal(got, []string{"b0"}) || p.Active() != 1 {
		t.Errorf("leaving %v, %d active", got, p.Active())
	}
	if removed := p.Update(gone); removed != nil {
		t.Errorf("removed again: %v", names(removed))
	}
	if got := names(p.Leaving()); !slices.Equal(got, []string{"b0"}) {
		t.Errorf("leaving %v", got)
	}
	lease.Release()
	if got := p.Leaving(); len(got) != 0 || p.Active() != 0 {
		t.Errorf("leaving %v, %d active", names(got), p.Active())
	}
}

// A backend that comes back while its old connections are still open is the same
// one, so that they count; but what was known of its health is from before, and
// whoever would have cleared it has stopped watching (case O-11).
func TestUpdateBringsBack(t *testing.T) {
	with, without := poolSpec("first", 100, 100), poolSpec("first", 100, 100)
	without.Backends = without.Backends[1:]
	p := New(with, nil)
	b0 := p.Backends()[0]
	lease := acquire(t, p, flow(1))
	p.SetFlag(b0.ID(), Down|Drained, true)
	p.Update(without)
	with.Backends[0].Initial = Ejected
	p.Update(with)
	if p.Backends()[0] != b0 || b0.Active() != 1 || len(p.Leaving()) != 0 {
		t.Fatal("it came back as somebody else")
	}
	if b0.Flags() != Ejected {
		t.Errorf("flags %v", b0.Flags())
	}
	lease.Release()

	p.Update(without) // without a lease it is forgotten
	p.Update(with)
	if b := p.Backends()[0]; b == b0 || b.Total() != 0 {
		t.Error("a backend that was gone has a memory")
	}
}

func TestUpdateOfEqualIDs(t *testing.T) {
	spec := poolSpec("random", 100, 100)
	spec.Backends = append(spec.Backends, spec.Backends[0])
	spec.Backends[2].Weight = 7
	p := New(spec, nil)
	if got := names(p.Backends()); !slices.Equal(got, []string{"b0", "b1"}) || p.Backends()[0].Weight() != 100 {
		t.Errorf("backends %v", got)
	}
	// The same name at two addresses is two backends: that is how a DNS name looks.
	spec.Backends[2] = backendSpec(5, 100)
	spec.Backends[2].Name = "b0"
	p.Update(spec)
	if got := names(p.Backends()); !slices.Equal(got, []string{"b0", "b1", "b0"}) {
		t.Errorf("backends %v", got)
	}
}

func TestUnknownAlgorithmPanics(t *testing.T) {
	defer func() {
		if got, ok := recover().(string); !ok || !strings.Contains(got, `pool "pool"`) || !strings.Contains(got, `"luck"`) {
			t.Errorf("panic %q", got)
		}
	}()
	New(poolSpec("luck", 1), nil)
}

func TestSetFlag(t *testing.T) {
	p := New(poolSpec("random", 100, 100), nil)
	b := p.Backends()[0]
	for _, step := range []struct {
		f       Flag
		on      bool
		changed bool
		want    Flag
	}{
		{Down, false, false, 0},
		{Down, true, true, Down},
		{Down, true, false, Down},
		{Ejected | Maint, true, true, Down | Ejected | Maint},
		{Down, false, true, Ejected | Maint},
		{Removed, true, false, Ejected | Maint},
		{Ejected | Maint, false, true, 0},
	} {
		if got := p.SetFlag(b.ID(), step.f, step.on); got != step.changed || b.Flags() != step.want {
			t.Errorf("%v %v: changed %v, flags %v", step.f, step.on, got, b.Flags())
		}
		if want := 2 - min(int(b.Flags()), 1); p.Eligible() != want {
			t.Errorf("%v: %d eligible, want %d", b.Flags(), p.Eligible(), want)
		}
	}
	if p.SetFlag(BackendID{Name: "nobody"}, Down, true) {
		t.Error("a stranger was changed")
	}
}

// A change that leaves the eligible set alone leaves the picker alone.
func TestPickerIsKept(t *testing.T) {
	spec := poolSpec("maglev", 100, 100, 0)
	p := New(spec, nil)
	before := p.view.Load().strategies[0].picker
	p.Update(spec)
	spec.Backends[0].MaxConnections = 7
	p.Update(spec)
	p.SetFlag(spec.Backends[2].id(), Down, true)
	if p.view.Load().strategies[0].picker != before {
		t.Error("the picker was built again")
	}
	spec.Hash.Mask4 = 24
	p.Update(spec)
	if p.view.Load().strategies[0].picker == before {
		t.Error("the hash changed, the picker did not")
	}
}

// What callers do with what they are given is their own affair.
func TestCallersGetCopies(t *testing.T) {
	spec := poolSpec("random", 100, 100)
	p := New(spec, nil)
	spec.Backends[0].Name = "mine"
	p.Spec().Backends[1].Name = "mine"
	p.Backends()[0] = nil
	if got := p.Spec().Backends; got[0].Name != "b0" || got[1].Name != "b1" || p.Backends()[0] == nil {
		t.Errorf("spec %v, backends %v", got, p.Backends())
	}
}

func TestSnapshot(t *testing.T) {
	spec := poolSpec("first", 100, 100, 0)
	spec.Backends[1].Backup = true
	spec.Backends[1].MaxConnections = 3
	p := New(spec, nil)
	lease := acquire(t, p, flow(1))
	p.Update(Spec{Algorithm: "first", Backends: spec.Backends[1:]})
	p.SetFlag(spec.Backends[2].id(), Down|Maint, true)
	second := acquire(t, p, flow(1))
	second.Release()
	want := Snapshot{
		Name: "pool", Algorithm: "first", Eligible: 1, Active: 1, Backup: true,
		Backends: []BackendSnapshot{
			{Name: "b1", Addr: spec.Backends[1].Addr, State: "up", Weight: 100, Configured: 100, Share: 100, Trials: -1, Backup: true, MaxConnections: 3, Total: 1},
			{Name: "b2", Addr: spec.Backends[2].Addr, Flags: Down | Maint, State: "maint", Share: 100, Trials: -1},
			{Name: "b0", Addr: spec.Backends[0].Addr, Flags: Removed, State: "removed", Weight: 100, Configured: 100, Share: 100, Trials: -1, Active: 1, Total: 1},
		},
	}
	same := cmp.Comparer(func(a, b Address) bool { return a == b })
	if diff := cmp.Diff(want, p.Snapshot(), same); diff != "" {
		t.Error(diff)
	}
	lease.Release()
	want.Backends, want.Active = want.Backends[:2], 0
	if diff := cmp.Diff(want, p.Snapshot(), same); diff != "" {
		t.Error(diff)
	}
}
