package balance

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// town is a pool under flows of some length, on virtual time. Its last backend is the
// newcomer.
type town struct {
	p     *Pool
	spec  Spec
	open  []openFlow
	count int
}

type openFlow struct {
	Lease
	ends time.Time
}

func newTown(algorithm string, weights []int, seed uint64) *town {
	spec := poolSpec(algorithm, weights...)
	spec.SlowStart = 4 * time.Second
	x := seed
	v := &town{spec: spec, p: New(spec, func() uint64 {
		x += 0x9e3779b97f4a7c15
		z := x
		z ^= z >> 30
		z *= 0xbf58476d1ce4e5b9
		return z ^ z>>27
	})}
	v.p.SetFlag(v.newcomer().id, Down, true)
	return v
}

func (v *town) newcomer() *Backend { b := v.p.Backends(); return b[len(b)-1] }

// arrive makes n flows, evenly over d, and returns how many the newcomer got. life says
// how long one lasts; 0 is for ever.
func (v *town) arrive(t testing.TB, n int, d time.Duration, life func(*Backend) time.Duration) (got int) {
	for range n {
		v.count++
		lease, err := v.p.Acquire(flow(v.count), nil)
		if err != nil {
			t.Fatal(err)
		}
		lease.Report(true, time.Millisecond)
		if lease.Backend() == v.newcomer() {
			got++
		}
		if l := life(lease.Backend()); l > 0 {
			v.open = append(v.open, openFlow{lease, time.Now().Add(l)})
		}
		time.Sleep(d / time.Duration(n))
		kept := v.open[:0]
		for i := range v.open {
			if f := &v.open[i]; time.Now().Before(f.ends) {
				kept = append(kept, *f)
			} else {
				f.Release()
			}
		}
		v.open = kept
	}
	return got
}

// behind reports whether the newcomer has clearly fewer flows open than the others, for
// their weights: once it is let go, algorithms that draw keep it near them only.
func (v *town) behind() bool {
	var active, weight int64
	for _, b := range v.p.Backends() {
		if b != v.newcomer() {
			active += b.Active()
			weight += int64(b.Weight())
		}
	}
	return (v.newcomer().Active()*10/9+5)*weight < active*int64(v.newcomer().Weight())
}

func (v *town) end() { v.p.Update(Spec{Algorithm: v.spec.Algorithm}) }

func forever(*Backend) time.Duration { return 0 }

// The end of a slow start is no step: until its load has caught up, a newcomer's share
// of new flows stays below twice the fair one, and it does catch up.
func TestCatchUpWithLongFlows(t *testing.T) {
	for _, algorithm := range []string{"least-conn", "p2c", "fastest", "ewma", "adaptive"} {
		t.Run(algorithm, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				weights := rapid.SliceOfN(rapid.SampledFrom([]int{50, 100, 200}), 2, 6).Draw(rt, "weights")
				before, rate := rapid.IntRange(50, 500).Draw(rt, "before"), rapid.IntRange(50, 200).Draw(rt, "rate")
				seed := rapid.Uint64().Draw(rt, "seed")
				var err error
				synctest.Test(t, func(t *testing.T) { err = catchUpWithLongFlows(t, newTown(algorithm, weights, seed), before, rate) })
				if err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

func catchUpWithLongFlows(t *testing.T, v *town, before, rate int) error {
	defer v.end()
	v.arrive(t, before, time.Second, forever)
	v.p.SetFlag(v.newcomer().id, Down, false)
	sum := 0
	for _, b := range v.spec.Backends {
		sum += b.Weight
	}
	fair := float64(v.newcomer().Weight()) / float64(sum)
	limited := func() bool { return v.p.view.Load().lane != nil }
	v.arrive(t, 4*rate, v.spec.SlowStart, forever)
	for second := range 200 {
		if !limited() && v.spec.Algorithm != "adaptive" { // which does not look at load
			if v.behind() {
				return fmt.Errorf("it is let go with %d flows open", v.newcomer().Active())
			}
			return nil
		}
		got := v.arrive(t, rate, time.Second, forever)
		// What is drawn varies, and what comes after it has caught up in this second is free.
		if most := 2 * fair * float64(rate); v.behind() && float64(got) >= most+3*math.Sqrt(most) {
			return fmt.Errorf("second %d after the start: %d of %d, a fair share is %.0f %%", second, got, rate, 100*fair)
		}
	}
	if limited() {
		return errors.New("it never catches up")
	}
	return nil
}

// Who has short flows has caught up at once, and who is faster than the others, so that
// it never holds as many, is not limited for ever.
func TestCatchUpWithShortFlows(t *testing.T) {
	for _, algorithm := range []string{"least-conn", "p2c", "fastest", "ewma", "adaptive"} {
		for name, life := range map[string][2]time.Duration{
			"instant": {time.Nanosecond, time.Nanosecond}, "short": {50 * time.Millisecond, 50 * time.Millisecond},
			"faster": {400 * time.Millisecond, 40 * time.Millisecond}, "slower": {40 * time.Millisecond, 400 * time.Millisecond},
		} {
			t.Run(algorithm+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					v := newTown(algorithm, equal(4), 1)
					defer v.end()
					lives := func(b *Backend) time.Duration {
						if b == v.newcomer() {
							return life[1]
						}
						return life[0]
					}
					v.arrive(t, 400, 2*time.Second, lives)
					v.p.SetFlag(v.newcomer().id, Down, false)
					v.arrive(t, 800, v.spec.SlowStart, lives)
					for second := 0; v.p.view.Load().lane != nil; second++ {
						if second == 20 {
							t.Fatalf("still limited: %d open", v.newcomer().Active())
						}
						if v.arrive(t, 200, time.Second, lives) == 0 {
							t.Fatal("starved")
						}
					}
				})
			})
		}
	}
}
