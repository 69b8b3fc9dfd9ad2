package loop

import (
	"sync"
	"time"
)

// Group is loops that run, one per core. The datapaths share them: what is
// registered with a loop by one package takes turns with that of another. Each has
// something of its own for every loop, which it finds by the loop's index.
type Group []*Loop

// Start makes n loops, at least one, and runs them. Stop ends them.
func Start(n int) (Group, error) {
	var g Group
	for range max(n, 1) {
		l, err := New()
		if err != nil {
			g.Stop()
			return nil, err
		}
		go l.Run()
		g = append(g, l)
	}
	return g, nil
}

// Stop ends every loop, each after what was posted to it before.
func (g Group) Stop() {
	for _, l := range g {
		l.Stop()
	}
}

// Do runs f on every loop, with the loop's index, and returns when all have.
// Loops that have been stopped are left out. It must not be called on a loop.
func (g Group) Do(f func(i int, l *Loop)) {
	done := make(chan struct{}, len(g))
	for i, l := range g {
		if !l.Post(func() { f(i, l); done <- struct{}{} }) {
			done <- struct{}{}
		}
	}
	for range g {
		<-done
	}
}

// Each has f run on every loop, with the loop's index, and does not wait.
func (g Group) Each(f func(i int)) {
	for i, l := range g {
		l.Post(func() { f(i) })
	}
}

// Within runs f on every loop, with the loop's index, and reports whether all have
// done so within d. One that is late runs it all the same. It must not be called on a
// loop.
func (g Group) Within(d time.Duration, f func(i int)) bool {
	done := make(chan struct{}, len(g))
	for i, l := range g {
		if !l.Post(func() { f(i); done <- struct{}{} }) {
			return false
		}
	}
	limit := time.NewTimer(d)
	defer limit.Stop()
	for range g {
		select {
		case <-done:
		case <-limit.C:
			return false
		}
	}
	return true
}

// Gather returns what f has on all loops of g together, those left out that are late
// by d. It must not be called on a loop.
func Gather[T any](g Group, d time.Duration, f func(i int) []T) []T {
	var mu sync.Mutex
	var all []T
	g.Within(d, func(i int) {
		some := f(i)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
	})
	mu.Lock()
	defer mu.Unlock()
	list := all
	all = nil // a loop that is late must not append to what the caller has
	return list
}

// Busy returns, for every loop, the time it has spent at work rather than waiting, and
// the time it exists.
func (g Group) Busy() (busy, total []time.Duration) {
	for _, l := range g {
		age := time.Since(l.start)
		total = append(total, age)
		busy = append(busy, max(age-l.Waited(), 0))
	}
	return busy, total
}
