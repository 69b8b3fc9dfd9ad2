package balance

import (
	"testing"

	"github.com/poise-lb/poise/l4"
)

// Case O-46: flows that fail by what their clients do neither send other flows away
// from a backend nor let one that fails them all look idle.
func TestDoubt(t *testing.T) {
	for _, algorithm := range []string{"least-conn", "p2c", "adaptive"} {
		for _, load := range []int{0, 20} {
			p := New(Spec{Name: "p", Algorithm: algorithm, Backends: specs(2)}, nil)
			for range 2 * load {
				lease(t, p)
			}
			for range 200 { // nonsense everywhere
				l := lease(t, p)
				l.Doubt()
				l.Release()
			}
			counts := map[string]int{}
			for range 200 {
				l := lease(t, p)
				counts[l.Backend().Name()]++
				l.Report(true, 1)
				l.Release()
			}
			for _, b := range p.Backends() {
				if n := counts[b.Name()]; n < 20 {
					t.Errorf("%s, load %d: after nonsense %s has %d of 200", algorithm, load, b.Name(), n)
				}
			}

			// One resets everybody, the other is well and has long flows.
			p = New(Spec{Name: "p", Algorithm: algorithm, Backends: specs(2)}, nil)
			broken, n := p.Backends()[0], 0
			for range load {
				if _, err := p.Acquire(l4.Flow{}, func(b *Backend) bool { return b == broken }); err != nil {
					t.Fatal(err)
				}
			}
			for range 200 {
				l := lease(t, p)
				if l.Backend() == broken {
					n++
					l.Doubt()
				} else {
					l.Report(true, 1)
				}
				l.Release()
			}
			if n > 120 {
				t.Errorf("%s, load %d: the broken one has %d of 200", algorithm, load, n)
			}
		}
	}
}

func lease(t *testing.T, p *Pool) Lease {
	t.Helper()
	l, err := p.Acquire(l4.Flow{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func specs(n int) (list []BackendSpec) {
	for i := range n {
		list = append(list, BackendSpec{Name: string(rune('a' + i)), Weight: 100})
	}
	return list
}
