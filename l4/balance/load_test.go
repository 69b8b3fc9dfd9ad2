package balance

import (
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// Another data path finds the words of a Load by these offsets.
func TestLoadLayout(t *testing.T) {
	var l Load
	for i, offset := range []uintptr{
		unsafe.Offsetof(l.Active), unsafe.Offsetof(l.Mine), unsafe.Offsetof(l.Limit), unsafe.Offsetof(l.Total),
		unsafe.Offsetof(l.Picked), unsafe.Offsetof(l.Failing), unsafe.Offsetof(l.Refused), unsafe.Offsetof(l.Unanswered),
	} {
		if offset != uintptr(i)*8 {
			t.Errorf("word %d is at %d", i, offset)
		}
	}
	if unsafe.Sizeof(l) != cacheLine || unsafe.Sizeof(estimates{}) != cacheLine {
		t.Errorf("%d and %d bytes", unsafe.Sizeof(l), unsafe.Sizeof(estimates{}))
	}
}

// Turns of both data paths alternate, and go on in the next process. A queue of the process
// before is forgotten.
func TestLineIsShared(t *testing.T) {
	var line Line
	if unsafe.Offsetof(line.Step) != 0 || unsafe.Offsetof(line.Waiting) != 8 || unsafe.Sizeof(line) != cacheLine {
		t.Error("the layout has changed")
	}
	line.Step.Store(1 << 40)
	line.Waiting.Store(7)
	memory := shared{}.memory()
	memory.Line = &line
	spec := poolSpec("round-robin", 3, 2, 1)
	p := NewIn(memory, spec, nil)
	counts := map[string]int{}
	for i := range 600 {
		plan := p.Plan()
		turn := (line.Step.Load() - plan.From) % uint64(len(plan.Order))
		want := plan.Members[plan.Order[turn]].ID.Name
		if i%3 == 0 { // the other path takes it
			line.Step.Add(1)
			counts[want]++
			continue
		}
		got := touch(t, p, flow(i))
		if counts[got]++; got != want {
			t.Fatalf("turn %d: %s, and the plan says %s", turn, got, want)
		}
		if i == 300 { // a change and back: turns go on
			p.SetFlag(spec.Backends[2].id(), Down, true)
			p.SetFlag(spec.Backends[2].id(), Down, false)
		}
	}
	if counts["b0"] < 299 || counts["b0"] > 301 || counts["b1"] < 199 || counts["b1"] > 201 {
		t.Errorf("%v", counts)
	}
	full := poolSpec("first", 100)
	full.Backends[0].MaxConnections, full.Queue.Size = 1, 1
	p = NewIn(memory, full, nil)
	lease := acquire(t, p, flow(1))
	var granted []int
	c := newClient(1, &granted)
	if at, err := p.Wait(&c.Waiter); at != 1 || err != nil || line.Waiting.Load() != 1 {
		t.Errorf("place %d, %v; %d wait", at, err, line.Waiting.Load())
	}
	if lease.Release(); len(granted) != 1 || line.Waiting.Load() != 0 {
		t.Errorf("granted %v, %d wait", granted, line.Waiting.Load())
	}
}

// shared is memory that a test's own data path counts in, by backend.
type shared map[BackendID]*Load

func (m shared) memory() Memory {
	return Memory{Loads: func(ids []BackendID) (loads []*Load) {
		for _, id := range ids {
			if m[id] == nil {
				m[id] = new(Load)
			}
			loads = append(loads, m[id])
		}
		return loads
	}}
}

// Two data paths over the same words: together they never exceed a limit, and each knows
// what is its own.
func TestLimitHoldsOverBothPaths(t *testing.T) {
	m := shared{}
	spec := poolSpec("least-conn", equal(2)...)
	const limit = 3
	for i := range spec.Backends {
		spec.Backends[i].MaxConnections = limit
	}
	p := NewIn(m.memory(), spec, nil)
	var open [2]atomic.Int64
	enter := func(i int) {
		if n := open[i].Add(1); n > limit {
			t.Errorf("%d at once", n)
		}
	}
	var paths sync.WaitGroup
	for range 2 {
		paths.Go(func() {
			for i := range 50_000 {
				lease, err := p.Acquire(flow(i), nil)
				if err != nil {
					continue
				}
				at := int(lease.Backend().Name()[1] - '0')
				enter(at)
				open[at].Add(-1)
				lease.Release()
			}
		})
		paths.Go(func() {
			for i := range 50_000 {
				l := m[spec.Backends[i%2].id()]
				n := l.Active.Load()
				if n >= l.Limit.Load() || !l.Active.CompareAndSwap(n, n+1) {
					continue
				}
				enter(i % 2)
				open[i%2].Add(-1)
				l.Active.Add(-1)
			}
		})
	}
	paths.Wait()
	for id, l := range m {
		if l.Active.Load() != 0 || l.Mine.Load() != 0 {
			t.Errorf("%v: %d active, %d mine", id, l.Active.Load(), l.Mine.Load())
		}
	}
}

// What a process held when it died can be told from what the other path holds, and taken
// back; the next process goes on counting in the same words.
func TestSuccessorTakesBack(t *testing.T) {
	m := shared{}
	spec := poolSpec("first", 100)
	dead := NewIn(m.memory(), spec, nil)
	for i := range 5 {
		acquire(t, dead, flow(i)) // and never released
	}
	l := m[spec.Backends[0].id()]
	l.Active.Add(2) // flows of the other path
	l.Total.Add(2)
	l.Active.Add(-l.Mine.Swap(0))
	p := NewIn(m.memory(), spec, nil)
	lease := acquire(t, p, flow(1))
	if b := p.Backends()[0]; b.Active() != 3 || b.Total() != 8 || l.Mine.Load() != 1 {
		t.Errorf("active %d, total %d, mine %d", b.Active(), b.Total(), l.Mine.Load())
	}
	lease.Release()
	if l.Active.Load() != 2 || l.Mine.Load() != 0 {
		t.Errorf("released: active %d, mine %d", l.Active.Load(), l.Mine.Load())
	}

	heaped := New(spec, nil)
	acquire(t, heaped, flow(1))
	if own := heaped.Backends()[0].load.Mine.Load(); own != 0 {
		t.Errorf("on the heap %d are counted apart", own)
	}
}
