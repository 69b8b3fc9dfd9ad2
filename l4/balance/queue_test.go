package balance

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// queuedPool has n backends with room for one flow each and a queue.
func queuedPool(n, size int) (*Pool, Spec) {
	spec := poolSpec("round-robin", equal(n)...)
	spec.Queue.Size = size
	for i := range spec.Backends {
		spec.Backends[i].MaxConnections = 1
	}
	return New(spec, nil), spec
}

// client is a waiter that keeps what it is granted.
type client struct {
	Waiter
	lease   Lease
	err     error
	granted int
}

func newClient(i int, order *[]int) *client {
	c := &client{}
	c.Flow = flow(i)
	c.Grant = func(l Lease, err error) {
		c.lease, c.err = l, err
		c.granted++
		*order = append(*order, i)
	}
	return c
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	p, _ := queuedPool(2, 5)
	held := []Lease{acquire(t, p, flow(0)), acquire(t, p, flow(1))}
	var order []int
	var clients []*client
	for i := range 5 {
		c := newClient(i, &order)
		position, err := p.Wait(&c.Waiter)
		if err != nil || position != i+1 {
			t.Fatalf("client %d: position %d, %v", i, position, err)
		}
		clients = append(clients, c)
	}
	if _, err := p.Wait(&newClient(5, &order).Waiter); !errors.Is(err, ErrQueueFull) {
		t.Errorf("one too many: %v", err)
	}
	if p.Waiting() != 5 || p.Snapshot().Waiting != 5 {
		t.Errorf("%d waiting", p.Waiting())
	}
	if !p.Cancel(&clients[1].Waiter) || p.Cancel(&clients[1].Waiter) {
		t.Error("cancelled once, that is to say")
	}
	held[0].Release()
	held[1].Release()
	clients[0].lease.Release()
	if !slices.Equal(order, []int{0, 2, 3}) {
		t.Errorf("order %v", order)
	}
	if p.Cancel(&clients[2].Waiter) {
		t.Error("cancelled after the grant")
	}
	clients[2].lease.Release()
	clients[3].lease.Release()
	clients[4].lease.Release()
	if clients[1].granted != 0 || p.Waiting() != 0 || p.Active() != 0 {
		t.Errorf("%d waiting, %d active", p.Waiting(), p.Active())
	}
}

// Whoever comes while somebody waits does not overtake.
func TestQueueIsNotOvertaken(t *testing.T) {
	p, _ := queuedPool(1, 5)
	lease := acquire(t, p, flow(0))
	var order []int
	c := newClient(1, &order)
	c.Skip = func(b *Backend) bool { return true } // for a while it wants nobody
	p.queue.push(&c.Waiter)                        // as if there had been somebody
	lease.Release()                                // which refuses it: nobody is left for it
	if c.granted != 1 || !errors.Is(c.err, ErrNoBackend) {
		t.Errorf("granted %d, %v", c.granted, c.err)
	}

	p.queue.push(&newClient(2, &order).Waiter) // room, not yet noticed
	if _, err := p.Acquire(flow(3), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("overtaken: %v", err)
	}
	p.serve()
	if !slices.Equal(order, []int{1, 2}) {
		t.Errorf("order %v", order)
	}
}

// Everything that makes room wakes the queue.
func TestQueueWakes(t *testing.T) {
	for name, makeRoom := range map[string]func(p *Pool, spec Spec){
		"limit": func(p *Pool, spec Spec) {
			spec.Backends = slices.Clone(spec.Backends)
			spec.Backends[0].MaxConnections = 2
			p.Update(spec)
		},
		"no limit": func(p *Pool, spec Spec) {
			spec.Backends = slices.Clone(spec.Backends)
			spec.Backends[0].MaxConnections = 0
			p.Update(spec)
		},
		"backend": func(p *Pool, spec Spec) {
			spec.Backends = append(slices.Clone(spec.Backends), backendSpec(9, 1))
			p.Update(spec)
		},
		"flag":   func(p *Pool, spec Spec) { p.SetFlag(spec.Backends[1].id(), Down, false) },
		"weight": func(p *Pool, spec Spec) { p.SetWeight(spec.Backends[2].id(), 1) },
		"trial":  func(p *Pool, spec Spec) { p.SetTrial(spec.Backends[3].id(), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			p, spec := queuedPool(4, 1)
			p.SetFlag(spec.Backends[1].id(), Down, true)
			spec.Backends[2].Weight = 0
			p.Update(spec)
			p.SetTrial(spec.Backends[3].id(), 0)
			acquire(t, p, flow(0))
			var order []int
			c := newClient(1, &order)
			if _, err := p.Wait(&c.Waiter); err != nil || c.granted != 0 {
				t.Fatalf("waiting: %v", err)
			}
			makeRoom(p, spec)
			if c.granted != 1 || c.err != nil {
				t.Errorf("granted %d times, %v", c.granted, c.err)
			}
		})
	}
}

// When nobody is eligible any more there is nothing to wait for.
func TestQueueIsRefused(t *testing.T) {
	p, spec := queuedPool(1, 5)
	lease := acquire(t, p, flow(0))
	var order []int
	clients := []*client{newClient(1, &order), newClient(2, &order)}
	for _, c := range clients {
		if _, err := p.Wait(&c.Waiter); err != nil {
			t.Fatal(err)
		}
	}
	p.SetFlag(spec.Backends[0].id(), Down, true)
	for _, c := range clients {
		if c.granted != 1 || !errors.Is(c.err, ErrNoBackend) || c.lease.Backend() != nil {
			t.Errorf("granted %d, %v", c.granted, c.err)
		}
	}
	lease.Release()
}

// One that has tried the backend with room lets the next one pass.
func TestQueueWithSkip(t *testing.T) {
	p, _ := queuedPool(2, 5)
	held := []Lease{acquire(t, p, flow(0)), acquire(t, p, flow(1))}
	var order []int
	picky := newClient(1, &order)
	tried := held[0].Backend()
	picky.Skip = func(b *Backend) bool { return b == tried }
	plain := newClient(2, &order)
	p.Wait(&picky.Waiter)
	p.Wait(&plain.Waiter)
	held[0].Release()
	if picky.granted != 0 || plain.granted != 1 {
		t.Errorf("order %v", order)
	}
	held[1].Release()
	if picky.granted != 1 || picky.lease.Backend() == tried {
		t.Errorf("order %v", order)
	}
}

// A full queue of those who want none of the backends with room is no reason to
// refuse somebody who would take one.
func TestQueueFullOfThoseWhoSkip(t *testing.T) {
	p, _ := queuedPool(2, 1)
	held := []Lease{acquire(t, p, flow(0)), acquire(t, p, flow(1))}
	var order []int
	picky := newClient(1, &order)
	picky.Skip = func(b *Backend) bool { return b == held[0].Backend() }
	p.Wait(&picky.Waiter)
	if _, err := p.Wait(&newClient(2, &order).Waiter); !errors.Is(err, ErrQueueFull) {
		t.Errorf("no room: %v", err)
	}
	held[0].Release()
	plain := newClient(3, &order)
	if position, err := p.Wait(&plain.Waiter); err != nil || position != 0 || plain.granted != 1 {
		t.Errorf("position %d, %v, granted %d", position, err, plain.granted)
	}
	if _, err := p.Wait(&newClient(4, &order).Waiter); !errors.Is(err, ErrQueueFull) || picky.granted != 0 {
		t.Errorf("no room again: %v", err)
	}
	held[1].Release()
	if picky.granted != 1 {
		t.Error("the one who waited longest")
	}
}

func TestNoQueue(t *testing.T) {
	p, _ := queuedPool(1, 0)
	var order []int
	if _, err := p.Wait(&newClient(1, &order).Waiter); !errors.Is(err, ErrQueueFull) {
		t.Errorf("got %v", err)
	}
}

// No wake-up is lost: each client that waits is granted by somebody's release,
// however releases, limits and flags race with its coming and going. A lost one
// would leave the test waiting for ever.
func TestQueueUnderConcurrency(t *testing.T) {
	p, spec := queuedPool(3, 1000)
	var flags sync.WaitGroup
	stop := make(chan struct{})
	flags.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id := spec.Backends[i%3].id()
			p.SetFlag(id, Down, true)
			p.SetFlag(id, Down, false)
			if i%7 == 0 {
				p.Update(spec)
			}
		}
	})
	var running [3]atomic.Int64
	var clients sync.WaitGroup
	for l := range 6 {
		clients.Go(func() {
			for i := range 1500 {
				lease, err := p.Acquire(flow(l*10000+i), nil)
				if errors.Is(err, ErrBusy) {
					done := make(chan struct{})
					w := &Waiter{Flow: flow(i), Grant: func(got Lease, e error) { lease, err = got, e; close(done) }}
					if _, err := p.Wait(w); err != nil {
						t.Error(err)
						return
					}
					if i%5 == 0 && p.Cancel(w) {
						continue
					}
					<-done
				}
				if err != nil {
					if !errors.Is(err, ErrNoBackend) {
						t.Error(err)
					}
					continue
				}
				n := &running[lease.Backend().Name()[1]-'0']
				if n.Add(1) > 1 {
					t.Error("more leases than the limit")
				}
				n.Add(-1)
				lease.Report(i%3 != 0, 1)
				lease.Release()
			}
		})
	}
	clients.Wait()
	close(stop)
	flags.Wait()
	if p.Active() != 0 || p.Waiting() != 0 {
		t.Errorf("%d active, %d waiting", p.Active(), p.Waiting())
	}
}
