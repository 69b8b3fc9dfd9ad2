package loop_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/loop"
)

func group(t *testing.T, n int) loop.Group {
	t.Helper()
	g, err := loop.Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return g
}

func TestGroup(t *testing.T) {
	const n = 3
	g := group(t, n)
	var seen [n]*loop.Loop
	g.Do(func(i int, l *loop.Loop) { seen[i] = l })
	if !slices.Equal(seen[:], g) {
		t.Errorf("ran on %v of %v", seen, g)
	}
	each := make(chan int, n)
	g.Each(func(i int) { each <- i })
	got := []int{<-each, <-each, <-each}
	slices.Sort(got)
	if !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("ran as %v", got)
	}
	if busy, total := g.Busy(); len(busy) != n || len(total) != n || busy[0] < 0 || busy[0] > total[0] || total[0] <= 0 {
		t.Errorf("busy for %v of %v", busy, total)
	}
}

// A loop that is held up holds nobody else up, and what it has comes too late.
func TestGroupWithin(t *testing.T) {
	g := group(t, 2)
	if !g.Within(time.Minute, func(int) {}) {
		t.Error("nobody is late")
	}
	hold := make(chan struct{})
	g[1].Post(func() { <-hold })
	var ran atomic.Int32
	if g.Within(50*time.Millisecond, func(int) { ran.Add(1) }) {
		t.Error("the one that is held up is not missed")
	}
	list := loop.Gather(g, time.Second, func(i int) []int { return []int{i, i} })
	if !slices.Equal(list, []int{0, 0}) {
		t.Errorf("gathered %v", list)
	}
	close(hold)
	list = loop.Gather(g, time.Minute, func(i int) []int { return []int{i} })
	slices.Sort(list)
	if !slices.Equal(list, []int{0, 1}) || ran.Load() != 2 {
		t.Errorf("gathered %v, ran %d times", list, ran.Load())
	}
}

// Whatever ends by itself meanwhile, all are done by the end, and never many at once.
func TestSpread(t *testing.T) {
	for _, n := range []int{1, 3, 50, 100, 10_000} {
		const over = time.Second
		now := 5 * time.Second
		s := loop.SpreadOver(over, now)
		left, steps := n, 0
		for left > 0 {
			due, wait := s.Step(left, now)
			if due < 1 || due > left || due > n/40+1 && wait > 0 {
				t.Fatalf("%d of %d are due, of %d", due, left, n)
			}
			left -= due
			if wait == 0 {
				break
			}
			now += wait
			steps++
		}
		if left != 0 || now > 6*time.Second || steps > 101 {
			t.Errorf("%d: %d are left after %d steps, at %v", n, left, steps, now)
		}
	}
	if due, wait := loop.SpreadOver(0, time.Second).Step(7, time.Second); due != 7 || wait != 0 {
		t.Errorf("at once: %d, then %v", due, wait)
	}
}
