package balance

import (
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// model is a pool in the plainest possible terms: lists, searched.
type model struct {
	spec       Spec
	configured []*entry
	leaving    []*entry
	waiting    []*client
	held       []held
}

// held is a lease and whom the model holds it against.
type held struct {
	lease    Lease
	entry    *entry
	trial    int // the entry's trials it is one of, 0 = none
	reported bool
}

type entry struct {
	spec    BackendSpec
	backend *Backend // the real one
	flags   Flag
	leases  int64
	granted uint64

	override  int // the operator's weight, -1 = none
	trials    int // counts calls of SetTrial
	halfOpen  bool
	trialLeft int
}

func (e *entry) weight() int {
	if e.override >= 0 {
		return e.override
	}
	return e.spec.Weight
}

// room reports whether a flow could be added.
func (e *entry) room(panic bool) bool {
	return (e.spec.MaxConnections == 0 || e.leases < int64(e.spec.MaxConnections)) &&
		(panic || !e.halfOpen || e.trialLeft > 0)
}

func (m *model) find(list []*entry, id BackendID) *entry {
	i := slices.IndexFunc(list, func(e *entry) bool { return e.spec.id() == id })
	if i < 0 {
		return nil
	}
	return list[i]
}

// eligible lists who may get flows, and whether that is for panic.
func (m *model) eligible() (list []*entry, panic bool) {
	var well, usable [2][]*entry
	for _, e := range m.configured {
		tier := 0
		if e.spec.Backup {
			tier = 1
		}
		if e.weight() > 0 && e.flags&^(Down|Ejected) == 0 {
			usable[tier] = append(usable[tier], e)
			if e.flags == 0 {
				well[tier] = append(well[tier], e)
			}
		}
	}
	tier := 0
	if well[0] == nil && (well[1] != nil || usable[0] == nil) {
		tier = 1
	}
	if len(well[tier])*100 < m.spec.Panic*len(usable[tier]) {
		return usable[tier], true
	}
	return well[tier], false
}

func (m *model) update(spec Spec) (removed []*entry) {
	m.spec = spec
	var next []*entry
	for _, s := range spec.Backends {
		e := m.find(m.configured, s.id())
		if e == nil {
			if e = m.find(m.leaving, s.id()); e == nil {
				e = &entry{}
			}
			e.flags, e.override, e.halfOpen = s.Initial, -1, false
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

// settle lets the model know what the queue has been granted: from its head, in
// order, only what is there to be had, and all of it.
func (m *model) settle(t *rapid.T, p *Pool, granted *[]int, take func(*rapid.T, Lease, func(*Backend) bool)) {
	for _, e := range m.configured { // learn the identity of new ones first
		for _, b := range p.Backends() {
			if b.ID() == e.spec.id() {
				e.backend = b
			}
		}
	}
	for range *granted {
		if len(m.waiting) == 0 || m.waiting[0].granted != 1 {
			t.Fatalf("granted %v, out of order", *granted)
		}
		c := m.waiting[0]
		m.waiting = m.waiting[1:]
		list, _ := m.eligible()
		switch {
		case c.err == nil:
			take(t, c.lease, nil)
		case !errors.Is(c.err, ErrNoBackend) || len(list) > 0:
			t.Fatalf("%d eligible, and a waiter gets %v", len(list), c.err)
		}
	}
	*granted = nil
	list, panic := m.eligible()
	for _, e := range list {
		if len(m.waiting) > 0 && e.room(panic) {
			t.Fatalf("%d wait, and %s has room", len(m.waiting), e.spec.Name)
		}
	}
	if len(m.waiting) > 0 && len(list) == 0 || p.Waiting() != len(m.waiting) {
		t.Fatalf("%d wait for %d, the pool says %d", len(m.waiting), len(list), p.Waiting())
	}
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
			if b.Flags() != e.flags || b.Weight() != e.weight() || b.Backup() != e.spec.Backup || b.MaxConnections() != e.spec.MaxConnections {
				t.Fatalf("%s: flags %v, weight %d, backup %v, limit %d; want %v, %+v", b.Name(), b.Flags(), b.Weight(), b.Backup(), b.MaxConnections(), e.flags, e.spec)
			}
			if b.Active() != e.leases || b.Total() != e.granted {
				t.Fatalf("%s: active %d of %d, want %d of %d", b.Name(), b.Active(), b.Total(), e.leases, e.granted)
			}
			active += e.leases
		}
	}
	list, panic := m.eligible()
	if p.Active() != active || p.Eligible() != len(list) || p.Panicking() != panic {
		t.Fatalf("%d active, %d eligible, panic %v; want %d, %d, %v", p.Active(), p.Eligible(), p.Panicking(), active, len(list), panic)
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
	spec.Panic = rapid.SampledFrom([]int{0, 0, 30, 50, 100}).Draw(t, "panic")
	spec.Queue.Size = rapid.IntRange(0, 3).Draw(t, "queue")
	spec.SlowStart = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "slow start")
	if rapid.IntRange(0, 3).Draw(t, "sticky") == 0 {
		spec.Sticky = &Sticky{TTL: time.Hour, Size: 10}
	}
	if rapid.IntRange(0, 3).Draw(t, "ab") == 0 {
		other := rapid.SampledFrom(algorithms()).Draw(t, "other")
		spec.AB = &AB{A: spec.Algorithm, B: other, Split: 0.5}
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
