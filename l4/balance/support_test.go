package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/poise-lb/poise/l4"
)

// seeded returns a random source that is the same in every run, unless
// POISE_TEST_SEED says otherwise, and safe for concurrent use.
func seeded(tb testing.TB) func() uint64 {
	tb.Helper()
	seed := uint64(1)
	if s := os.Getenv("POISE_TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			tb.Fatalf("POISE_TEST_SEED: %v", err)
		}
		seed = n
	}
	tb.Logf("POISE_TEST_SEED=%d", seed)
	return locked(rand.NewPCG(seed, 0))
}

// locked makes a random source safe for concurrent use.
func locked(source rand.Source) func() uint64 {
	var mu sync.Mutex
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Uint64()
	}
}

// backendSpec describes backend number i: "b0" at 10.0.0.0:5432 and so on.
func backendSpec(i, weight int) BackendSpec {
	return BackendSpec{
		Name:   fmt.Sprintf("b%d", i),
		Addr:   Address{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 5432)},
		Weight: weight,
	}
}

// poolSpec describes a pool of one backend for each weight.
func poolSpec(algorithm string, weights ...int) Spec {
	s := Spec{Name: "pool", Algorithm: algorithm}
	for i, w := range weights {
		s.Backends = append(s.Backends, backendSpec(i, w))
	}
	return s
}

// equal returns n weights of 100, the default of the configuration.
func equal(n int) []int { return slices.Repeat([]int{100}, n) }

// flow returns the flow of client number i, one address for each.
func flow(i int) l4.Flow {
	addr := netip.AddrFrom4([4]byte{127, byte(i >> 16), byte(i >> 8), byte(i)})
	return l4.Flow{Client: netip.AddrPortFrom(addr, 40000), VIP: netip.MustParseAddrPort("192.0.2.1:5432")}
}

// algorithms lists the whole table, sorted.
func algorithms() []string {
	var words []string
	for _, a := range Algorithms {
		words = append(words, a.Word)
	}
	slices.Sort(words)
	return words
}

// acquire fails the test if there is no lease to be had.
func acquire(tb testing.TB, p *Pool, f l4.Flow) Lease {
	tb.Helper()
	lease, err := p.Acquire(f, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return lease
}

// touch acquires and releases at once, and returns the backend's name.
func touch(tb testing.TB, p *Pool, f l4.Flow) string {
	tb.Helper()
	lease := acquire(tb, p, f)
	defer lease.Release()
	return lease.Backend().Name()
}

// picker returns the pool's current picker as its own type.
func picker[T Picker](tb testing.TB, p *Pool) T {
	tb.Helper()
	own, ok := p.view.Load().strategies[0].picker.(T)
	if !ok {
		tb.Fatalf("the picker is a %T", p.view.Load().strategies[0].picker)
	}
	return own
}

// fits fails the test if the counts are not a plausible sample of the
// probabilities: chi squared more than six deviations over its mean.
func fits(tb testing.TB, counts map[string]int, probability map[string]float64) {
	tb.Helper()
	n, chi := 0, 0.0
	for key, count := range counts {
		if probability[key] == 0 {
			tb.Errorf("%s: %d draws of something impossible", key, count)
		}
		n += count
	}
	for key, p := range probability {
		want := p * float64(n)
		chi += (float64(counts[key]) - want) * (float64(counts[key]) - want) / want
	}
	freedom := float64(len(probability) - 1)
	if limit := freedom + 6*math.Sqrt(2*freedom); chi > limit {
		tb.Errorf("chi squared %.1f is over %.1f: counts %v, probabilities %v", chi, limit, counts, probability)
	}
}
