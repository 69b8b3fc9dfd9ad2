package balance

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Random lives of a pool: whatever happens in whatever order, it does what the
// model says.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m model
		spec := drawSpec(t)
		p := New(spec, nil)
		m.update(spec)
		number := 0
		var granted []int
		take := func(t *rapid.T, lease Lease, skip func(*Backend) bool) {
			b := lease.Backend()
			list, panic := m.eligible()
			e := m.find(list, b.ID())
			switch {
			case e == nil || e.backend != b:
				t.Fatalf("%s is not eligible", b.Name())
			case skip != nil && skip(b):
				t.Fatalf("%s is refused", b.Name())
			case !e.room(panic):
				t.Fatalf("%s has no room", b.Name())
			case (lease.Strategy() != "") != (m.spec.AB != nil):
				t.Fatalf("strategy %q", lease.Strategy())
			}
			e.leases++
			e.granted++
			h := held{lease: lease, entry: e}
			if e.halfOpen && !panic {
				h.trial = e.trials
				e.trialLeft--
			}
			m.held = append(m.held, h)
		}
		release := func(t *rapid.T, i int) {
			h := &m.held[i]
			h.entry.leases--
			if h.trial == h.entry.trials && h.trial > 0 && h.entry.halfOpen && !h.reported {
				h.entry.trialLeft++
			}
			h.lease.Release()
			h.lease.Release()
			m.held = slices.Delete(m.held, i, i+1)
		}
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
				if rapid.Bool().Draw(t, "one of the usual") {
					f = rapid.SampledFrom([]Flag{Down, Ejected}).Draw(t, "flag")
				}
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
			"weight": func(t *rapid.T) {
				id, w := drawBackend(t).id(), rapid.SampledFrom([]int{-1, 0, 1, 7, maxWeight}).Draw(t, "operator")
				want := false
				if e := m.find(m.configured, id); e != nil {
					old := e.weight()
					e.override = w
					want = e.weight() != old
				}
				if got := p.SetWeight(id, w); got != want {
					t.Fatalf("changed %v, want %v", got, want)
				}
			},
			"trial": func(t *rapid.T) {
				id, n := drawBackend(t).id(), rapid.IntRange(-1, 2).Draw(t, "trials")
				e := m.find(m.configured, id)
				if e != nil {
					e.halfOpen, e.trialLeft = n >= 0, max(n, 0)
					e.trials++
				}
				if got := p.SetTrial(id, n); got != (e != nil) {
					t.Fatalf("known %v", got)
				}
			},
			"time": func(t *rapid.T) { // a step of the slow starts
				p.mu.Lock()
				for _, b := range p.backends {
					if !b.usedSince.IsZero() {
						b.usedSince = b.usedSince.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "minutes")) * time.Minute)
					}
				}
				p.mu.Unlock()
				p.nextStep()
			},
			"acquire": func(t *rapid.T) {
				number++
				var skip func(*Backend) bool
				mask := rapid.SampledFrom([]uint64{0, 0, 0b101, 0b1010, 0xffff}).Draw(t, "mask")
				if mask != 0 {
					skip = func(b *Backend) bool { return mask&(1<<(b.Name()[1]-'0')) != 0 }
				}
				left, room := 0, 0
				list, panic := m.eligible()
				for _, e := range list {
					if skip == nil || !skip(e.backend) {
						left++
						if e.room(panic) {
							room++
						}
					}
				}
				lease, err := p.Acquire(flow(number%20), skip)
				switch {
				case left == 0:
					if !errors.Is(err, ErrNoBackend) {
						t.Fatalf("nobody left: %v", err)
					}
				case room == 0 || len(m.waiting) > 0:
					if !errors.Is(err, ErrBusy) {
						t.Fatalf("no room left, %d waiting: %v", len(m.waiting), err)
					}
				case err != nil:
					t.Fatalf("%d of %d have room: %v", room, left, err)
				default:
					take(t, lease, skip)
				}
			},
			"wait": func(t *rapid.T) {
				number++
				c := newClient(number, &granted)
				m.waiting = append(m.waiting, c)
				position, err := p.Wait(&c.Waiter)
				if full := len(m.waiting) > m.spec.Queue.Size; full != errors.Is(err, ErrQueueFull) || !full && position != len(m.waiting) {
					t.Fatalf("position %d, %v; %d waiting of %d", position, err, len(m.waiting)-1, m.spec.Queue.Size)
				}
				if err != nil {
					m.waiting = m.waiting[:len(m.waiting)-1]
				}
			},
			"leave": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip("nobody waits")
				}
				i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "who")
				if !p.Cancel(&m.waiting[i].Waiter) {
					t.Fatal("too late to cancel")
				}
				m.waiting = slices.Delete(m.waiting, i, i+1)
			},
			"report": func(t *rapid.T) {
				if len(m.held) == 0 {
					t.Skip("nothing held")
				}
				h := &m.held[rapid.IntRange(0, len(m.held)-1).Draw(t, "which")]
				h.lease.Report(rapid.Bool().Draw(t, "ok"), time.Duration(rapid.IntRange(0, 1e9).Draw(t, "latency")))
				h.reported = true
			},
			"release": func(t *rapid.T) {
				if len(m.held) == 0 {
					t.Skip("nothing held")
				}
				release(t, rapid.IntRange(0, len(m.held)-1).Draw(t, "which"))
			},
			"": func(t *rapid.T) {
				m.settle(t, p, &granted, take)
				m.check(t, p)
			},
		})
		for len(m.held) > 0 {
			release(t, 0)
			m.settle(t, p, &granted, take)
		}
		p.Update(Spec{Algorithm: "random"}) // nobody is left to wait for
		m.update(Spec{Algorithm: "random"})
		m.settle(t, p, &granted, take)
		m.check(t, p)
		if p.Active() != 0 || len(p.Leaving()) != 0 || p.Waiting() != 0 || len(m.waiting) != 0 {
			t.Fatalf("at the end: %d active, leaving %v, %d waiting", p.Active(), names(p.Leaving()), p.Waiting())
		}
	})
}
