package balance

import (
	"fmt"
	"testing"
)

func BenchmarkAcquire(b *testing.B) {
	for _, algorithm := range algorithms() {
		for _, n := range []int{2, 8, 64, 1024} {
			p := New(poolSpec(algorithm, equal(n)...), nil)
			f := flow(1)
			b.Run(fmt.Sprintf("%s/%d", algorithm, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					lease, err := p.Acquire(f, nil)
					if err != nil {
						b.Fatal(err)
					}
					lease.Release()
				}
			})
		}
	}
}

// Choosing alone: at most 50 ns at 8 members and 300 ns at 64, without allocation.
func BenchmarkPick(b *testing.B) {
	for _, algorithm := range algorithms() {
		for _, n := range []int{8, 64} {
			p := New(poolSpec(algorithm, equal(n)...), nil)
			for i := range n { // as in life: everything has been measured
				lease := acquire(b, p, flow(i))
				lease.Report(true, 1e6)
				lease.Release()
			}
			pick, f := p.view.Load().strategies[0].picker.Pick, flow(1)
			b.Run(fmt.Sprintf("%s/%d", algorithm, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					pick(f, nil)
				}
			})
		}
	}
}

func BenchmarkAcquireBounded(b *testing.B) {
	for _, n := range []int{8, 64, 1024} {
		spec := poolSpec("maglev", equal(n)...)
		spec.Hash.Bound = 1.25
		p := New(spec, nil)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := flow(1)
			for b.Loop() {
				lease, err := p.Acquire(f, nil)
				if err != nil {
					b.Fatal(err)
				}
				lease.Release()
			}
		})
	}
}

func BenchmarkAcquireParallel(b *testing.B) {
	for _, algorithm := range algorithms() {
		p := New(poolSpec(algorithm, equal(8)...), nil)
		b.Run(algorithm, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					lease, err := p.Acquire(flow(i), nil)
					if err != nil {
						b.Error(err)
						return
					}
					lease.Release()
				}
			})
		})
	}
}

// What a health check that changes its mind costs.
func BenchmarkRebuild(b *testing.B) {
	for _, algorithm := range algorithms() {
		for _, n := range []int{8, 64, 1024} {
			spec := poolSpec(algorithm, equal(n)...)
			p := New(spec, nil)
			b.Run(fmt.Sprintf("%s/%d", algorithm, n), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					p.SetFlag(spec.Backends[0].id(), Down, i%2 == 0)
				}
			})
		}
	}
}
