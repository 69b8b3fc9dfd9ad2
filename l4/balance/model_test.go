package balance

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is a pool in the plainest possible terms: lists, searched.
type model struct {
	configured []*entry
	leaving    []*entry
}

type entry struct {
	spec    BackendSpec
	backend *Backend // the real one
	flags   Flag
	leases  int64
	granted uint64
}

func (m *model) find(list []*entry, id BackendID) *entry {
	i := slices.IndexFunc(list, func(e *entry) bool { return e.spec.id() == id })
	if i < 0 {
		return nil
	}
	return list[i]
}

func (m *model) eligible() []*entry {
	for _, backup := range []bool{false, true} {
		var tier []*entry
		for _, e := range m.configured {
			if e.flags == 0 && e.spec.Weight > 0 && e.spec.Backup == backup {
				tier = append(tier, e)
			}
		}
		if tier != nil {
			return tier
		}
	}
	return nil
}

func (m *model) update(spec Spec) (removed []*entry) {
	var next []*entry
	for _, s := range spec.Backends {
		e := m.find(m.configured, s.id())
		if e == nil {
			if e = m.find(m.leaving, s.id()); e == nil {
				e = &entry{}
			}
			e.flags = s.Initial
		}
		e.spec = s
		next = append(next, e)
	}
	for _, e := range m.configured {
		if !slices.Contains(next, e) {
			e.flags |= Removed
			removed = append(removed, e)
			m.leaving = append(m.leaving, e)
		}
	}
	m.leaving = slices.DeleteFunc(m.leaving, func(e *entry) bool { return slices.Contains(next, e) || e.leases == 0 })
	m.configured = next
	return removed
}

// Random lives of a pool: whatever happens in whatever order, it does what the
// model says.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m model
		spec := drawSpec(t)
		p := New(spec, nil)
		m.update(spec)
		type held struct {
			lease Lease
			entry *entry
		}
		var leases []held
		client := 0
		t.Repeat(map[string]func(*rapid.T){
			"update": func(t *rapid.T) {
				spec := drawSpec(t)
				want := m.update(spec)
				removed := p.Update(spec)
				if len(removed) != len(want) {
					t.Fatalf("removed %v, want %d", names(removed), len(want))
				}
				for i, e := range want {
					if removed[i] != e.backend {
						t.Fatalf("removed %v at %d, want %s", names(removed), i, e.spec.Name)
					}
				}
			},
			"flag": func(t *rapid.T) {
				id := drawBackend(t).id()
				f := Flag(rapid.Uint32Range(1, uint32(Removed)<<1-1).Draw(t, "flags"))
				on := rapid.Bool().Draw(t, "on")
				want := false
				if e := m.find(m.configured, id); e != nil {
					old := e.flags
					if e.flags &^= f &^ Removed; on {
						e.flags |= f &^ Removed
					}
					want = e.flags != old
				}
				if got := p.SetFlag(id, f, on); got != want {
					t.Fatalf("changed %v, want %v", got, want)
				}
			},
			"acquire": func(t *rapid.T) {
				client++
				var skip func(*Backend) bool
				mask := rapid.SampledFrom([]uint64{0, 0, 0b101, 0b1010, 0xffff}).Draw(t, "mask")
				if mask != 0 {
					skip = func(b *Backend) bool { return mask&(1<<(b.Name()[1]-'0')) != 0 }
				}
				left, room := 0, 0
				for _, e := range m.eligible() {
					if skip == nil || !skip(e.backend) {
						left++
						if e.spec.MaxConnections == 0 || e.leases < int64(e.spec.MaxConnections) {
							room++
						}
					}
				}
				lease, err := p.Acquire(flow(client), skip)
				switch {
				case left == 0:
					if !errors.Is(err, ErrNoBackend) {
						t.Fatalf("nobody left: %v", err)
					}
					return
				case room == 0:
					if !errors.Is(err, ErrBusy) {
						t.Fatalf("no room left: %v", err)
					}
					return
				case err != nil:
					t.Fatalf("%d of %d have room: %v", room, left, err)
				}
				b := lease.Backend()
				e := m.find(m.eligible(), b.ID())
				if e == nil || e.backend != b {
					t.Fatalf("%s is not eligible", b.Name())
				}
				if skip != nil && skip(b) {
					t.Fatalf("%s is refused", b.Name())
				}
				e.leases++
				e.granted++
				if limit := int64(e.spec.MaxConnections); limit > 0 && b.Active() > limit {
					t.Fatalf("%s has %d of %d", b.Name(), b.Active(), limit)
				}
				leases = append(leases, held{lease, e})
			},
			"release": func(t *rapid.T) {
				if len(leases) == 0 {
					t.Skip("nothing held")
				}
				i := rapid.IntRange(0, len(leases)-1).Draw(t, "which")
				leases[i].lease.Release()
				leases[i].lease.Release()
				leases[i].entry.leases--
				leases = slices.Delete(leases, i, i+1)
			},
			"": func(t *rapid.T) { m.check(t, p) },
		})
		for i := range leases {
			leases[i].lease.Release()
			leases[i].entry.leases--
		}
		m.check(t, p)
		if p.Active() != 0 || len(p.Leaving()) != 0 {
			t.Fatalf("at the end: %d active, leaving %v", p.Active(), names(p.Leaving()))
		}
	})
}

// check compares all that can be seen, and learns the identity of new backends.
func (m *model) check(t *rapid.T, p *Pool) {
	m.leaving = slices.DeleteFunc(m.leaving, func(e *entry) bool { return e.leases == 0 })
	active := int64(0)
	for list, entries := range [][]*entry{m.configured, m.leaving} {
		backends := [][]*Backend{p.Backends(), p.Leaving()}[list]
		if len(backends) != len(entries) {
			t.Fatalf("%d backends in list %d, want %d", len(backends), list, len(entries))
		}
		for i, e := range entries {
			b := backends[i]
			if e.backend == nil {
				e.backend = b
			}
			if b != e.backend || b.ID() != e.spec.id() {
				t.Fatalf("%s at %d of list %d, want %s", b.Name(), i, list, e.spec.Name)
			}
			if b.Flags() != e.flags || b.Weight() != e.spec.Weight || b.Backup() != e.spec.Backup || b.MaxConnections() != e.spec.MaxConnections {
				t.Fatalf("%s: flags %v, weight %d, backup %v, limit %d; want %v, %+v", b.Name(), b.Flags(), b.Weight(), b.Backup(), b.MaxConnections(), e.flags, e.spec)
			}
			if b.Active() != e.leases || b.Total() != e.granted {
				t.Fatalf("%s: active %d of %d, want %d of %d", b.Name(), b.Active(), b.Total(), e.leases, e.granted)
			}
			active += e.leases
		}
	}
	if p.Active() != active || p.Eligible() != len(m.eligible()) {
		t.Fatalf("%d active, %d eligible; want %d, %d", p.Active(), p.Eligible(), active, len(m.eligible()))
	}
	if s := p.Snapshot(); s.Active != active || len(s.Backends) != len(m.configured)+len(m.leaving) {
		t.Fatalf("snapshot %+v", s)
	}
}

func drawSpec(t *rapid.T) Spec {
	spec := Spec{Name: "pool", Algorithm: rapid.SampledFrom(algorithms()).Draw(t, "algorithm")}
	spec.Backends = rapid.SliceOfNDistinct(rapid.Custom(drawBackend), 0, 6, BackendSpec.id).Draw(t, "backends")
	if rapid.Bool().Draw(t, "bounded") {
		spec.Hash.Bound = 1.25
	}
	return spec
}

func drawBackend(t *rapid.T) BackendSpec {
	s := backendSpec(rapid.IntRange(0, 5).Draw(t, "number"), rapid.SampledFrom([]int{0, 1, 1, 100, maxWeight}).Draw(t, "weight"))
	s.Backup = rapid.IntRange(0, 3).Draw(t, "backup") == 0
	s.MaxConnections = rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "limit")
	s.Initial = rapid.SampledFrom([]Flag{0, 0, 0, Down}).Draw(t, "initial")
	return s
}
