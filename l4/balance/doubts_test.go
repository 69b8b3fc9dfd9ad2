package balance

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/poise-lb/poise/l4"
)

// budgeted makes a pool with so many retries in ten seconds.
func budgeted(tb testing.TB, retries int) *Pool {
	tb.Helper()
	spec := poolSpec("first", 1, 1)
	spec.Retry = RetryBudget{Floor: retries / 10}
	return New(spec, func() uint64 { return 4711 })
}

// retriesOf counts how many of n retries a client is allowed at once.
func retriesOf(p *Pool, now time.Time, n int, e l4.Evidence, client netip.Addr) (allowed int) {
	for range n {
		if p.allowRetry(now, e, client) {
			allowed++
		}
	}
	return allowed
}

func ipv4(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}) }

// Whoever makes doubtful failures without end, half of the budget is left to failures
// that no client can bring about, and in the other half there is room for others. Before,
// the first client took all.
func TestDoubtfulRetriesLeaveTheRest(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		sources int
		address func(i int) netip.Addr
		each    int // retries that the first of them gets
		all     int // and all together, at most
	}{
		{"one address", 1, ipv4, 25, 25},
		{"a network of 64 bits", 1000, func(i int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 8: byte(i >> 8), 9: byte(i)})
		}, 25, 25},
		{"three addresses", 3, ipv4, 25, 44},
		{"a thousand addresses", 1000, ipv4, 25, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := budgeted(t, 100)
			sum := 0
			for i := range c.sources {
				n := retriesOf(p, now, 60, l4.Doubtful, c.address(i))
				if i == 0 && n != c.each {
					t.Errorf("the first one has had %d retries, want %d", n, c.each)
				}
				sum += n
			}
			if sum > c.all {
				t.Errorf("together they have had %d retries, want %d", sum, c.all)
			}
			other := netip.MustParseAddr("192.0.2.1")
			if n := retriesOf(p, now, 1000, l4.Doubtful, other); c.all < 50 && n == 0 {
				t.Error("another source has had none")
			} else {
				sum += n
			}
			if n := retriesOf(p, now, 1000, l4.Failed, other); n != 100-sum || n < 50 {
				t.Errorf("%d retries were left to sure failures after %d doubtful ones", n, sum)
			}
			if want := uint64(c.sources*60 + 2000 - 100); p.Snapshot().Denied != want {
				t.Errorf("%d retries are counted as denied, want %d", p.Snapshot().Denied, want)
			}
		})
	}
}

// Sources that ask by turns get the same, and a later one still gets some.
func TestDoubtfulRetriesAreShared(t *testing.T) {
	for _, sources := range []int{2, 4, 9} {
		p, now := budgeted(t, 1000), time.Now()
		had := make([]int, sources)
		for range 1000 {
			for i := range had {
				had[i] += retriesOf(p, now, 1, l4.Doubtful, ipv4(i))
			}
		}
		share := 500 / (sources + 1)
		for i, n := range had {
			if n < share-1 || n > share+1 {
				t.Errorf("of %d sources number %d has had %d retries, want %d", sources, i, n, share)
			}
		}
		if n := retriesOf(p, now, 1000, l4.Doubtful, ipv4(1000)); n < share/2-1 {
			t.Errorf("after %d sources another one has had %d retries", sources, n)
		}
	}
}

// What was taken is given back with time, and a pool without doubtful failures keeps no
// account of them.
func TestDoubtfulRetriesAreForgotten(t *testing.T) {
	p, now := budgeted(t, 100), time.Now()
	for range 5 {
		if n := retriesOf(p, now, 1000, l4.Doubtful, ipv4(1)); n != 25 {
			t.Errorf("%d retries", n)
		}
		now = now.Add(2 * budgetWindow)
		retriesOf(p, now, 1, l4.Failed, ipv4(2))
		now = now.Add(budgetWindow)
	}
	retriesOf(p, now, 1, l4.Failed, ipv4(2))
	if p.budget.Load().doubts.Load() != nil {
		t.Error("an account is kept")
	}
}

// Whatever doubtful retries there are, from whomever and when, sure ones are allowed as if
// they had half of the budget for themselves alone.
func TestSureRetriesHaveHalf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.IntRange(1, 5).Draw(t, "floor")
		shared, half := New(budgetSpec(2*floor), nil), New(budgetSpec(floor), nil)
		now := time.Now()
		shared.budget.Load().start, half.budget.Load().start = now, now
		var log []string
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			half.term(now, 0) // so that both windows begin at the same moments
			shared.term(now, 0)
			n := rapid.IntRange(1, 20).Draw(t, "retries")
			if rapid.Bool().Draw(t, "doubtful") {
				client := ipv4(rapid.IntRange(1, 300).Draw(t, "client"))
				log = append(log, fmt.Sprint(retriesOf(shared, now, n, l4.Doubtful, client), " doubtful"))
				continue
			}
			for range n {
				if half.allowRetry(now, l4.Failed, ipv4(0)) && !shared.allowRetry(now, l4.Failed, ipv4(0)) {
					t.Fatalf("a sure retry was denied after %v", log)
				}
			}
		}
	})
}

func budgetSpec(floor int) Spec {
	spec := poolSpec("first", 1, 1)
	spec.Retry = RetryBudget{Floor: floor}
	return spec
}
