package balance

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Every algorithm of the table keeps the same promises. Nothing here knows what
// any of them is for.
func eachAlgorithm(t *testing.T, test func(t *testing.T, algorithm string)) {
	for _, algorithm := range algorithms() {
		t.Run(algorithm, func(t *testing.T) { test(t, algorithm) })
	}
}

func TestEverySkipMask(t *testing.T) {
	weightings := map[string]func(i int) int{
		"equal":   func(int) int { return 100 },
		"rising":  func(i int) int { return i + 1 },
		"extreme": func(i int) int { return []int{maxWeight, 1, 300}[i%3] },
	}
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		for name, weight := range weightings {
			for n := range 8 {
				spec := poolSpec(algorithm)
				for i := range n {
					spec.Backends = append(spec.Backends, backendSpec(i, weight(i)))
				}
				p := New(spec, seeded(t))
				pick := p.view.Load().strategies[0].picker.Pick
				members := p.Backends()
				for mask := range 1 << n {
					refused := func(b *Backend) bool {
						i := slices.Index(members, b)
						if i < 0 {
							t.Fatalf("skip is asked about %v, which is no member", b)
						}
						return mask&(1<<i) != 0
					}
					for client := range 5 {
						b := pick(flow(client), refused)
						switch all := mask == 1<<n-1; {
						case all && b != nil:
							t.Fatalf("%s %d, mask %b: picked %s", name, n, mask, b.Name())
						case !all && b == nil:
							t.Fatalf("%s %d, mask %b: picked nobody", name, n, mask)
						case !all && refused(b):
							t.Fatalf("%s %d, mask %b: picked %s, which is refused", name, n, mask, b.Name())
						}
					}
				}
				if b := pick(flow(0), nil); (b == nil) != (n == 0) {
					t.Fatalf("%s %d, no skip: picked %v", name, n, b)
				}
			}
		}
	})
}

// Any one member is found when it is the only one not refused, at every size.
func TestTheLastOneLeft(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		for n := 1; n <= 64; n++ {
			p := New(poolSpec(algorithm, equal(n)...), nil)
			for _, only := range p.Backends() {
				lease, err := p.Acquire(flow(n), func(b *Backend) bool { return b != only })
				if err != nil || lease.Backend() != only {
					t.Fatalf("%d members, only %s left: got %v, %v", n, only.Name(), lease.Backend(), err)
				}
				lease.Release()
			}
		}
	})
}

// With room for two on each, 2n leases find it, whatever the algorithm would
// rather do; then the pool is busy until one is released.
func TestAllBusy(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		for _, n := range []int{1, 2, 3, 5, 64} {
			spec := poolSpec(algorithm, equal(n)...)
			for i := range spec.Backends {
				spec.Backends[i].Weight = i*i + 1
				spec.Backends[i].MaxConnections = 2
			}
			p := New(spec, nil)
			var leases []Lease
			for i := range 2 * n {
				leases = append(leases, acquire(t, p, flow(i)))
			}
			for _, b := range p.Backends() {
				if b.Active() != 2 {
					t.Fatalf("%d members: %s has %d leases", n, b.Name(), b.Active())
				}
			}
			nobody := func(*Backend) bool { return true }
			if lease, err := p.Acquire(flow(0), nil); !errors.Is(err, ErrBusy) || lease.Backend() != nil {
				t.Fatalf("all busy: %v, %v", lease.Backend(), err)
			}
			if _, err := p.Acquire(flow(0), func(b *Backend) bool { return b.Name() != "b0" }); !errors.Is(err, ErrBusy) {
				t.Fatalf("b0 left and busy: %v", err)
			}
			if _, err := p.Acquire(flow(0), nobody); !errors.Is(err, ErrNoBackend) {
				t.Fatalf("all refused: %v", err)
			}
			for i := range leases {
				freed := leases[i].Backend()
				leases[i].Release()
				if leases[i] = acquire(t, p, flow(7)); leases[i].Backend() != freed {
					t.Fatalf("%s had room, %s was chosen", freed.Name(), leases[i].Backend().Name())
				}
			}
			for i := range leases {
				leases[i].Release()
			}
			if p.Active() != 0 {
				t.Fatalf("%d active at the end", p.Active())
			}
		}
	})
}

func TestNobodyEligible(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		down := poolSpec(algorithm, 100, 100)
		for i := range down.Backends {
			down.Backends[i].Initial = Down
		}
		for name, spec := range map[string]Spec{
			"empty":      poolSpec(algorithm),
			"one zero":   poolSpec(algorithm, 0),
			"all zero":   poolSpec(algorithm, 0, 0, 0),
			"all down":   down,
			"below zero": poolSpec(algorithm, -1),
		} {
			p := New(spec, nil)
			for _, skip := range []func(*Backend) bool{nil, func(*Backend) bool { return false }} {
				if lease, err := p.Acquire(flow(1), skip); !errors.Is(err, ErrNoBackend) || lease.Backend() != nil {
					t.Errorf("%s: %v, %v", name, lease.Backend(), err)
				}
			}
			if p.Eligible() != 0 {
				t.Errorf("%s: %d eligible", name, p.Eligible())
			}
		}
	})
}

// Case O-07: 2 000 connections over weights 100/100/0.
func TestWeightZeroGetsNothing(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		p := New(poolSpec(algorithm, 100, 100, 1), nil)
		c := p.Backends()[2]
		var leases [5]Lease
		for i := range leases {
			lease, err := p.Acquire(flow(i), func(b *Backend) bool { return b != c })
			if err != nil {
				t.Fatal(err)
			}
			leases[i] = lease
		}

		p.Update(poolSpec(algorithm, 100, 100, 0))
		for i := range 2000 {
			if name := touch(t, p, flow(i)); name == "b2" {
				t.Fatalf("connection %d went to weight 0", i)
			}
		}
		if c.Active() != 5 || c.Total() != 5 || c.Flags() != 0 {
			t.Errorf("old leases: active %d, total %d, flags %v", c.Active(), c.Total(), c.Flags())
		}
		p.Update(poolSpec(algorithm, 0, 0, 0))
		if _, err := p.Acquire(flow(1), nil); !errors.Is(err, ErrNoBackend) {
			t.Errorf("all zero: %v", err)
		}
		if c.Active() != 5 {
			t.Errorf("old leases: active %d", c.Active())
		}
		for i := range leases {
			leases[i].Release()
		}
		if p.Active() != 0 {
			t.Errorf("%d active at the end", p.Active())
		}
	})
}

func TestBackupTier(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		spec := poolSpec(algorithm, 100, 100, 100, 100)
		spec.Backends[0].Backup, spec.Backends[3].Backup = true, true
		p := New(spec, nil)
		used := func() (names []string) {
			for i := range 200 {
				if name := touch(t, p, flow(i)); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names
		}
		within := func(names []string, allowed ...string) {
			t.Helper()
			for _, name := range names {
				if !slices.Contains(allowed, name) {
					t.Errorf("used %v, allowed %v", names, allowed)
				}
			}
		}
		set := func(i int, f Flag, on bool) {
			t.Helper()
			if !p.SetFlag(spec.Backends[i].id(), f, on) {
				t.Fatalf("b%d %v %v: not changed", i, f, on)
			}
		}
		within(used(), "b1", "b2")
		set(1, Down, true)
		within(used(), "b2")
		set(2, Maint, true)
		within(used(), "b0", "b3")
		if p.Eligible() != 2 {
			t.Errorf("%d eligible", p.Eligible())
		}
		set(0, Ejected, true)
		within(used(), "b3")
		set(1, Down, false)
		within(used(), "b1")
	})
}

// Backups do not help out when primaries are merely busy: they are for failure.
func TestBackupIsNotForBusy(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		spec := poolSpec(algorithm, 100, 100)
		spec.Backends[0].MaxConnections = 1
		spec.Backends[1].Backup = true
		p := New(spec, nil)
		lease := acquire(t, p, flow(1))
		if _, err := p.Acquire(flow(1), nil); !errors.Is(err, ErrBusy) {
			t.Errorf("got %v", err)
		}
		lease.Release()
	})
}

// A reload may change the algorithm; load and members stay.
func TestChangeOfAlgorithm(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, from string) {
		for _, to := range algorithms() {
			p := New(poolSpec(from, 1, 2, 3), nil)
			lease := acquire(t, p, flow(1))
			p.Update(poolSpec(to, 1, 2, 3))
			for i := range 20 {
				touch(t, p, flow(i))
			}
			p.Update(poolSpec(from, 3, 2, 1))
			touch(t, p, flow(1))
			if lease.Backend().Active() != 1 || p.Active() != 1 {
				t.Errorf("to %s and back: %d active", to, p.Active())
			}
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		plain := poolSpec(algorithm, 1, 2, 3, 4, 5)
		masked := plain
		masked.Hash = HashSpec{Port: true, Mask4: 24, Mask6: 64, Bound: 1.25}
		limited := poolSpec(algorithm, 1, 2, 3, 4, 5)
		for i := range limited.Backends {
			limited.Backends[i].MaxConnections = 1
		}
		sticky, compared, slow := plain, plain, plain
		sticky.Sticky = &Sticky{TTL: time.Hour, Size: 3}
		compared.AB = &AB{A: algorithm, B: "random", Split: 0.5}
		slow.SlowStart = time.Hour
		for name, spec := range map[string]Spec{
			"plain": plain, "masked": masked, "near the limit": limited,
			"sticky": sticky, "compared": compared, "slow start and trials": slow,
		} {
			p := New(spec, nil)
			if name == "slow start and trials" {
				p.SetFlag(spec.Backends[0].id(), Down, true)
				p.SetFlag(spec.Backends[0].id(), Down, false)
				p.SetTrial(spec.Backends[1].id(), 1)
			}
			if name == "near the limit" {
				for range 4 {
					acquire(t, p, flow(1))
				}
			}
			i := 0
			allocations := testing.AllocsPerRun(1000, func() {
				i++
				lease, err := p.Acquire(flow(i), nil)
				if err != nil {
					t.Fatal(err)
				}
				lease.Report(i%100 != 0, time.Duration(i))
				lease.Release()
			})
			p.Update(Spec{Algorithm: "first"}) // no slow start goes on
			if allocations != 0 {
				t.Errorf("%s: %v allocations", name, allocations)
			}
		}
	})
}
