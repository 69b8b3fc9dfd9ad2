package balance

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func stickySpec(algorithm string, n, size int) Spec {
	spec := poolSpec(algorithm, equal(n)...)
	spec.Sticky = &Sticky{TTL: time.Minute, Size: size}
	return spec
}

func TestSticky(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, algorithm string) {
		synctest.Test(t, func(t *testing.T) {
			spec := stickySpec(algorithm, 5, 1000)
			p := New(spec, seeded(t))
			const clients = 200
			first := make([]string, clients)
			for i := range first {
				first[i] = touch(t, p, flow(i))
			}
			same := func(when string, change bool) {
				t.Helper()
				for i := range first {
					if name := touch(t, p, flow(i)); name != first[i] {
						if !change {
							t.Fatalf("%s: client %d was on %s and comes to %s", when, i, first[i], name)
						}
						first[i] = name
					}
				}
			}
			same("again", false)
			time.Sleep(50 * time.Second)
			same("within the time", false)
			time.Sleep(50 * time.Second)
			same("within the time since the latest", false)
			spec.Backends[0].Weight = 7
			p.Update(spec)
			same("after a reload", false)
			spec.Sticky = &Sticky{TTL: time.Minute, Size: 5000}
			p.Update(spec)
			same("in a larger table", false)

			out := first[0] // broken when it is not eligible
			for i, b := range p.Backends() {
				if b.Name() == out {
					p.SetFlag(spec.Backends[i].id(), Drained, true)
					for i := range first {
						if name := touch(t, p, flow(i)); name == out || first[i] != out && name != first[i] {
							t.Fatalf("client %d was on %s and comes to %s while %s is out", i, first[i], name, out)
						}
					}
					p.SetFlag(spec.Backends[i].id(), Drained, false)
				}
			}
			same("elsewhere", true)
			same("and for good", false)

			// Of a retry: the new one is remembered.
			lease, err := p.Acquire(flow(0), func(b *Backend) bool { return b.Name() == first[0] })
			if err != nil || lease.Backend().Name() == first[0] {
				t.Fatalf("retry: %v, %v", lease.Backend(), err)
			}
			lease.Release()
			if name := touch(t, p, flow(0)); name != lease.Backend().Name() {
				t.Errorf("after a retry on %s comes to %s", lease.Backend().Name(), name)
			}
		})
	})
}

// What is full is not waited for, and not forgotten.
func TestStickyToAFullBackend(t *testing.T) {
	spec := stickySpec("round-robin", 2, 10)
	spec.Backends[0].MaxConnections, spec.Backends[1].MaxConnections = 1, 1
	p := New(spec, nil)
	first := acquire(t, p, flow(1))
	second := acquire(t, p, flow(1))
	if second.Backend() == first.Backend() {
		t.Fatal("both on one")
	}
	if _, err := p.Acquire(flow(1), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
	first.Release()
	second.Release()
	if name := touch(t, p, flow(1)); name != first.Backend().Name() {
		t.Error("forgotten")
	}
}

func TestStickyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(stickySpec("round-robin", 2, 10), nil)
		first := touch(t, p, flow(1))
		touch(t, p, flow(2)) // so that round robin would go on to the first again
		time.Sleep(time.Minute)
		if touch(t, p, flow(1)) != first {
			t.Error("gone within its time")
		}
		touch(t, p, flow(2))
		time.Sleep(time.Minute + 1)
		seen := map[string]bool{}
		for range 8 { // round robin decides each time
			time.Sleep(time.Minute + 1)
			seen[touch(t, p, flow(1))] = true
		}
		if len(seen) != 2 {
			t.Errorf("still on %v", seen)
		}
	})
}

// The table is bounded, and forgets whom it has not seen for longest.
func TestStickyIsBounded(t *testing.T) {
	for _, size := range []int{1, 3, 1000, 5000, 100000} {
		table := newStickyTable(size)
		b := &Backend{}
		now := time.Unix(0, 0)
		for i := range 3 * size {
			table.bind(stickySource(flow(i)), b, now)
			if i%1000 == 0 && table.len() > size {
				t.Fatalf("%d of %d", table.len(), size)
			}
		}
		if n := table.len(); n > size || n < size*9/10 {
			t.Errorf("%d of %d", n, size)
		}
		if size <= stickyMinShard { // one shard: the order is exact
			for i := range 3 * size {
				if kept := table.find(stickySource(flow(i)), now, time.Hour) != nil; kept != (i >= 2*size) {
					t.Fatalf("size %d, source %d: kept is %v", size, i, kept)
				}
			}
		}
		half := table.resized(size / 2)
		if n := half.len(); n > max(size/2, 1) {
			t.Errorf("%d after shrinking to %d", n, size/2)
		}
	}
}

func TestStickyOffForgets(t *testing.T) {
	spec := stickySpec("random", 3, 10)
	p := New(spec, nil)
	touch(t, p, flow(1))
	if n := p.Snapshot().Sticky; n != 1 {
		t.Errorf("%d remembered", n)
	}
	spec.Sticky = nil
	p.Update(spec)
	if n := p.Snapshot().Sticky; n != 0 {
		t.Errorf("%d remembered", n)
	}
}
