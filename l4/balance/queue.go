package balance

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
)

// ErrQueueFull says that as many flows wait as may.
var ErrQueueFull = errors.New("the queue is full")

// A Waiter waits in a pool's queue for a backend with room. It is used once, and
// its fields are not changed while it waits.
type Waiter struct {
	Flow l4.Flow
	Skip func(*Backend) bool // as for Acquire; runs on any goroutine
	// Grant is called once, unless Cancel was in time: with a lease, which is then
	// the waiter's, or with ErrNoBackend when there is nobody left to wait for. It
	// runs on the goroutine that made room, with no lock held, maybe before Wait
	// returns; it must hand over at once.
	Grant func(Lease, error)

	next, prev *Waiter
	queued     bool
}

// queue is first in, first out. Whoever comes while somebody waits gets ErrBusy
// from Acquire, even if there is room at that moment: it is for the head.
type queue struct {
	waiting *atomic.Int64 // set once: how many; all that Acquire and Release look at

	mu    sync.Mutex // guards the following
	first *Waiter
	last  *Waiter
	picky int // of those waiting, how many have a Skip
}

// Wait joins the queue and returns the place in it, 1 for the head, 0 if there was
// room after all, or ErrQueueFull. Call it after ErrBusy; how long to wait is up to the caller, who
// then calls Cancel.
//
// No wake-up is lost: a waiter is counted before it looks for room itself, and
// room is made before the count is read.
func (p *Pool) Wait(w *Waiter) (position int, err error) {
	q := &p.queue
	q.mu.Lock()
	if n := q.waiting.Load(); n >= int64(p.view.Load().queue.Size) {
		var lease Lease
		err = ErrQueueFull
		if n > 0 && n == int64(q.picky) {
			// All who wait are choosy, and Acquire does not look past them.
			if granted, _, busy := p.acquire(w.Flow, w.Skip); busy == nil {
				lease, err = granted, nil
			}
		}
		q.mu.Unlock()
		if err == nil {
			w.Grant(lease, nil)
		}
		return 0, err
	}
	q.push(w)
	position = int(q.waiting.Load())
	q.mu.Unlock()
	p.serve()
	return position, nil
}

// Cancel leaves the queue. False means that it is too late: Grant has been called
// or is about to be.
func (p *Pool) Cancel(w *Waiter) bool {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	if !w.queued {
		return false
	}
	p.queue.remove(w)
	return true
}

// Waiting returns how many flows wait. It takes no lock.
func (p *Pool) Waiting() int { return int(p.queue.waiting.Load()) }

// QueueSpec returns the queue's bounds. It takes no lock.
func (p *Pool) QueueSpec() Queue { return p.view.Load().queue }

// Room tells the pool that flows of another data path have ended, so that there may be
// room for those who wait. Releases of leases tell it themselves.
func (p *Pool) Room() {
	if p.queue.waiting.Load() != 0 {
		p.serve()
	}
}

// serve grants what there is room for, in order. It is called, with no lock held,
// after anything that may have made room.
func (p *Pool) serve() {
	for {
		w, lease, err := p.head()
		if w == nil {
			return
		}
		w.Grant(lease, err)
	}
}

// head takes the first waiter that can be served out of the queue. Among those
// that take any backend that is the head; one that must not go to certain
// backends may have to let others pass.
func (p *Pool) head() (*Waiter, Lease, error) {
	q := &p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	busy := false
	for w := q.first; w != nil && !(busy && q.picky == 0); w = w.next {
		if busy && w.Skip == nil {
			continue
		}
		lease, _, err := p.acquire(w.Flow, w.Skip)
		if err == ErrBusy {
			busy = busy || w.Skip == nil
			continue
		}
		q.remove(w)
		return w, lease, err
	}
	return nil, Lease{}, nil
}

// push appends w. q.mu is held.
func (q *queue) push(w *Waiter) {
	w.queued, w.prev, w.next = true, q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	if w.Skip != nil {
		q.picky++
	}
	q.waiting.Add(1)
}

// remove takes w out. q.mu is held.
func (q *queue) remove(w *Waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	if w.Skip != nil {
		q.picky--
	}
	w.queued, w.prev, w.next = false, nil, nil
	q.waiting.Add(-1)
}
