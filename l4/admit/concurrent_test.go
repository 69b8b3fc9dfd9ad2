package admit

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/poise-lb/poise/l4"
)

const workers = 8

// Under reloads, never more are open than may be, and in the end nothing is.
func TestConcurrentCounts(t *testing.T) {
	const limit, sources, rounds = 3, 50, 5000
	specs := []Spec{
		{PerSource: limit, Mask4: 24},
		{PerSource: limit, Mask4: 24, SourceRate: 1e6, Rate: 1e8},
		{PerSource: limit, Mask4: 24, SourceRate: 10, Deny: prefixes("172.16.0.0/12")},
	}
	var current atomic.Pointer[Policy]
	current.Store(policy(t, specs[0], nil))
	var open [sources]atomic.Int32
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			type held struct {
				by *Policy
				n  int
			}
			var mine []held
			release := func(i int) {
				h := mine[i]
				mine[i] = mine[len(mine)-1]
				mine = mine[:len(mine)-1]
				open[h.n].Add(-1)
				h.by.Release(sourceAddr(h.n))
			}
			for range rounds {
				if len(mine) > 0 && rand.IntN(2) == 0 {
					release(rand.IntN(len(mine)))
				}
				n := rand.IntN(sources)
				p := current.Load()
				switch o := p.Admit(sourceAddr(n)); o {
				case l4.OK:
					admitted.Add(1)
					if now := open[n].Add(1); now > limit {
						t.Errorf("%d open of one source, %d allowed", now, limit)
					}
					mine = append(mine, held{p, n})
				case l4.RefusedLimit, l4.RefusedRate:
					refused.Add(1)
				default:
					t.Errorf("refused: %v", o)
				}
			}
			for len(mine) > 0 {
				release(0)
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			p, err := New(specs[i%len(specs)], current.Load())
			if err != nil {
				t.Error(err)
				return
			}
			current.Store(p)
		}
	}()
	wg.Wait()
	close(stop)
	<-stopped
	if admitted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d admitted and %d refused: the test has tested nothing", admitted.Load(), refused.Load())
	}
	p := current.Load()
	if p.here.open() {
		t.Error("something is open after all was released")
	}
	check(t, p)
}

// sourceAddr is a random address of the /24 that is source n.
func sourceAddr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(n), byte(rand.IntN(256))})
}

// A rate is one for all cores: no matter how many ask at one moment, as many as
// there are at once come in, not one more and not one less.
func TestConcurrentRates(t *testing.T) {
	for _, spec := range []Spec{
		{Rate: 5000},
		{SourceRate: 5000},
		{Rate: 5000, SourceRate: 1e6, PerSource: 1e6},
		{Rate: 1e6, SourceRate: 5000, PerSource: 1e6},
	} {
		p := policy(t, spec, nil)
		at(p)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range 2000 {
					if p.Admit(addr("10.0.0.1")) == l4.OK {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := admitted.Load(); n != 5000 {
			t.Errorf("%+v: %d admitted, want 5000", spec, n)
		}
	}
}
