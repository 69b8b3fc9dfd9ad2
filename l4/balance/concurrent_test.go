package balance

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Four loops acquire and release while flags, limits, weights, members and the
// algorithm change under them. Each counts for itself what it holds.
func TestConcurrentLife(t *testing.T) {
	const limit = 3
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		spec := poolSpec(algorithm, 3, 2, 1, 1)
		for i := range spec.Backends {
			spec.Backends[i].MaxConnections = limit
		}
		p := New(spec, nil)
		held := map[string]*atomic.Int64{}
		for _, b := range spec.Backends {
			held[b.Name] = new(atomic.Int64)
		}

		var loops, changer sync.WaitGroup
		stop := make(chan struct{})
		changer.Go(func() {
			other := Spec{Algorithm: "least-conn", Backends: spec.Backends[1:]}
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := spec.Backends[i%4].id()
				p.SetFlag(id, Down, true)
				p.Snapshot()
				p.SetFlag(id, Down, false)
				if i%5 == 0 {
					p.Update(other)
					p.Leaving()
					p.Update(spec)
				}
			}
		})
		for l := range 4 {
			loops.Go(func() {
				var mine []Lease
				release := func() {
					held[mine[0].Backend().Name()].Add(-1)
					mine[0].Release()
					mine = mine[1:]
				}
				for i := range 2000 {
					var skip func(*Backend) bool
					if i%3 == 0 && len(mine) > 0 {
						tried := mine[0].Backend()
						skip = func(b *Backend) bool { return b == tried }
					}
					lease, err := p.Acquire(flow(l*10000+i), skip)
					if err != nil {
						if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNoBackend) {
							t.Error(err)
						}
						if len(mine) > 0 {
							release()
						}
						continue
					}
					name := lease.Backend().Name()
					if n := held[name].Add(1); n > limit {
						t.Errorf("%d leases on %s, limit %d", n, name, limit)
					}
					if mine = append(mine, lease); len(mine) > 4 {
						release()
					}
				}
				for len(mine) > 0 {
					release()
				}
			})
		}
		loops.Wait()
		close(stop)
		changer.Wait()
		p.Update(spec)
		if n := p.Active(); n != 0 || len(p.Leaving()) != 0 {
			t.Errorf("at the end: %d active, leaving %v", n, names(p.Leaving()))
		}
		granted := uint64(0)
		for _, b := range p.Backends() {
			granted += b.Total()
		}
		if granted == 0 {
			t.Error("no lease was ever granted")
		}
	})
}

// What drains is over when it is over: once a backend that SetFlag or Update took
// out has no lease left, no Acquire that was under way can still get one.
func TestDrainedStaysDrained(t *testing.T) {
	p := New(poolSpec("random", 100, 100), nil)
	with, without := poolSpec("random", 100, 100), poolSpec("random", 100, 100)
	without.Backends = without.Backends[1:]

	var loops sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		loops.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lease, err := p.Acquire(flow(1), nil)
				if err != nil {
					t.Error(err)
					return
				}
				lease.Release()
			}
		})
	}
	for i := range 500 {
		b := p.Backends()[0]
		if i%2 == 0 {
			p.SetFlag(b.ID(), Drained, true)
		} else {
			p.Update(without)
		}
		for spin := 0; b.Active() != 0 && spin < 1e7; spin++ {
			p.Eligible() // until it is drained
		}
		total := b.Total()
		for range 50 {
			p.Eligible() // time for the loops to go wrong
		}
		if b.Total() != total {
			t.Errorf("round %d: a drained backend got a lease", i)
		}
		p.Update(with)
		p.SetFlag(b.ID(), Drained, false)
	}
	close(stop)
	loops.Wait()
}

// The same without luck: the change comes while the algorithm is choosing, and the
// backend it takes out is the one that is chosen.
func TestChangeDuringAcquire(t *testing.T) {
	changes := map[string]func(p *Pool, b *Backend){
		"drained": func(p *Pool, b *Backend) { p.SetFlag(b.ID(), Drained, true) },
		"weight 0": func(p *Pool, b *Backend) {
			spec := p.Spec()
			for i := range spec.Backends {
				if spec.Backends[i].id() == b.ID() {
					spec.Backends[i].Weight = 0
				}
			}
			p.Update(spec)
		},
		"removed": func(p *Pool, b *Backend) {
			spec := p.Spec()
			spec.Backends = slices.DeleteFunc(spec.Backends, func(s BackendSpec) bool { return s.id() == b.ID() })
			p.Update(spec)
		},
		"another": func(p *Pool, b *Backend) {
			p.SetFlag(p.Backends()[0].ID(), Down, true)
			p.SetFlag(p.Backends()[0].ID(), Down, false)
		},
	}
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		for what, change := range changes {
			p := New(poolSpec(algorithm, 100, 100, 100), nil)
			var out *Backend
			lease, err := p.Acquire(flow(1), func(b *Backend) bool {
				if out == nil {
					out = b
					change(p, b)
				}
				return false
			})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if chosen := lease.Backend(); what != "another" && chosen == out {
				t.Errorf("%s: it was chosen all the same", what)
			}
			if p.Active() != 1 || lease.Backend().Active() != 1 || lease.Backend().Total() != 1 {
				t.Errorf("%s: %d active", what, p.Active())
			}
			if lease.Backend() != out && out.Total() != 0 {
				t.Errorf("%s: it counts a lease that never was", what)
			}
			lease.Release()
		}
	})
}

// Exactly the limit, however many rush in at once.
func TestLimitIsExact(t *testing.T) {
	for _, limit := range []int64{1, 2, 3} {
		var c Load
		c.Limit.Store(limit)
		var holders, most atomic.Int64
		var loops sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			loops.Go(func() {
				<-start
				for range 300_000 {
					if !c.take() {
						continue
					}
					if n := holders.Add(1); n > limit {
						most.Store(n)
					}
					holders.Add(-1)
					c.Active.Add(-1)
				}
			})
		}
		close(start)
		loops.Wait()
		if n := most.Load(); n != 0 || c.Active.Load() != 0 {
			t.Errorf("limit %d: %d at once, %d left", limit, n, c.Active.Load())
		}
	}
}

// Nor is anyone refused while there is room.
func TestLimitIsReached(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		for round := range 50 {
			spec := poolSpec(algorithm, 100, 1, 50)
			for i := range spec.Backends {
				spec.Backends[i].MaxConnections = i + 1
			}
			p := New(spec, nil)
			var granted, busy atomic.Int64
			var rush sync.WaitGroup
			for i := range 12 {
				rush.Go(func() {
					switch _, err := p.Acquire(flow(i), nil); {
					case err == nil:
						granted.Add(1)
					case errors.Is(err, ErrBusy):
						busy.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			rush.Wait()
			got := fmt.Sprint(granted.Load(), busy.Load())
			for _, b := range p.Backends() {
				got += fmt.Sprint(" ", b.Active())
			}
			if got != "6 6 1 2 3" {
				t.Fatalf("round %d: granted, busy, active: %s", round, got)
			}
		}
	})
}
