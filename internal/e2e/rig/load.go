package rig

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/poise-lb/poise/internal/loadgen"
)

// Load runs clients that make short connections, one after the other, until End
// is called, which returns what came of it.
type Load struct {
	cancel context.CancelFunc
	done   chan struct{}
	result loadgen.Result
	err    error

	mu      sync.Mutex // guards the following
	Samples []loadgen.Sample
}

// StartLoad starts the clients; they end with the test at the latest.
func StartLoad(t *testing.T, listen string, clients int) *Load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &Load{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.result, l.err = loadgen.Run(ctx, loadgen.Options{
			Addr: listen, Clients: clients, PerConnection: 1, Size: 64, Timeout: Patience,
			Observe: func(s loadgen.Sample) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.Samples = append(l.Samples, s)
			},
		})
	}()
	t.Cleanup(func() { cancel(); <-l.done })
	return l
}

// More waits until n further requests have been answered.
func (l *Load) More(t *testing.T, n int) {
	t.Helper()
	seen := l.count()
	Eventually(t, fmt.Sprintf("%d more requests", n), func() bool { return l.count() >= seen+n })
}

func (l *Load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.Samples)
}

// End stops the load. No request may have failed.
func (l *Load) End(t *testing.T) loadgen.Result {
	t.Helper()
	l.cancel()
	<-l.done
	if l.err != nil {
		t.Fatal(l.err)
	}
	if l.result.Failed != 0 {
		t.Errorf("%d of %d requests failed: %+v", l.result.Failed, l.result.Failed+l.result.Requests, l.result.Errors)
	}
	return l.result
}
