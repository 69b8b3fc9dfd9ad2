package rig

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Repeated is something that clients do again and again in the background while the
// test does something else, of which they must not notice anything.
type Repeated struct {
	done atomic.Int64
	stop func()
}

// Repeat has n clients do it, each with a pause of the interval after every time, until
// Stop is called or the test ends. An error fails the test.
func Repeat(t testing.TB, n int, interval time.Duration, do func() error) *Repeated {
	t.Helper()
	r := &Repeated{}
	end := make(chan struct{})
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(interval):
				}
				if err := do(); err != nil {
					t.Error(err)
				}
				r.done.Add(1)
			}
		})
	}
	r.stop = sync.OnceFunc(func() { close(end); clients.Wait() })
	t.Cleanup(r.stop)
	return r
}

// Count returns how often it has been done.
func (r *Repeated) Count() int64 { return r.done.Load() }

// More waits until it has been done n times more.
func (r *Repeated) More(t testing.TB, n int64) {
	t.Helper()
	seen := r.Count()
	Eventually(t, fmt.Sprintf("%d more of what clients repeat", n), func() bool { return r.Count() >= seen+n })
}

// Stop ends it, waits for what is under way, and returns how often it was done.
func (r *Repeated) Stop() int64 {
	r.stop()
	return r.Count()
}
