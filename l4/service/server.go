package service

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/notice"
	"github.com/poise-lb/poise/l4/sock"
)

// A Host is what the servers of a process share.
type Host struct {
	Loops       loop.Group        // they run, and are to be stopped after the servers are closed
	Descriptors *sock.Descriptors // what the whole data path may use
	Log         *slog.Logger
	Opener      *Opener // nil = all sockets are bound here
}

// A Protocol is what is a protocol's own about services. Functions that may be nil do
// nothing then.
type Protocol[R any, S Socket] struct {
	Proto   l4.Proto
	Notices []notice.Kind // see Service.Notify

	// Worker makes what the protocol has on a loop. It is called on that.
	Worker func(i int, l *loop.Loop) Worker
	// Sockets makes the sockets of a listener of their descriptors, which are bound and
	// in the order of the workers; -1 if a worker has none.
	Sockets func(l *Listener[R, S], fds []int) []S
	// Shares says that several workers can have descriptors of the same socket.
	Shares bool
	// Lend has l, which is not configured yet, serve as the listeners by do, which have
	// all of its addresses; those that are not retired come first. It may be nil.
	Lend func(l *Listener[R, S], by []*Listener[R, S])
	// Succeed is called when routes have changed, before the listeners of old, which are
	// configured no more, are retired. It has those of present take over what it can,
	// and returns when no loop works by an old route.
	Succeed func(old, present []*Listener[R, S])
	// Grace is how long a retired listener is open at least.
	Grace time.Duration
}

// Server owns the listeners and services of one protocol. R is what a listener does
// with what comes, T what is counted of a service, and S a socket of a listener.
type Server[R, T any, S Socket] struct {
	Host     // set once
	protocol Protocol[R, S]
	workers  []Worker
	state
	attending sync.WaitGroup

	table atomic.Pointer[map[uint16][]*Listener[R, S]] // by port; immutable

	changing sync.Mutex // held from Prepare to Commit or Abort

	mu        sync.Mutex // guards the following
	listeners map[l4.Listen]*Listener[R, S]
	services  map[string]*Service[T]
	opened    uint64 // listeners so far
	closed    bool
}

// New makes a server without services.
func New[R, T any, S Socket](h Host, p Protocol[R, S]) *Server[R, T, S] {
	s := &Server[R, T, S]{
		Host:      h,
		protocol:  p,
		workers:   make([]Worker, len(h.Loops)),
		state:     state{vacated: make(chan struct{}, 1), notices: notice.NewWriter(h.Log), kinds: p.Notices},
		listeners: map[l4.Listen]*Listener[R, S]{},
		services:  map[string]*Service[T]{},
	}
	s.publishLocked()
	h.Loops.Do(func(i int, l *loop.Loop) { s.workers[i] = p.Worker(i, l) })
	s.attending.Go(s.attend)
	return s
}

// Close ends what the server does on its loops, and what is still open. Nothing else
// may be called afterwards but the readers of counters.
func (s *Server[R, T, S]) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	s.Loops.Do(func(i int, _ *loop.Loop) { s.workers[i].Shut() })
	close(s.vacated)
	s.attending.Wait()
	s.notices.Close()
}

// Active returns how many clients are open, of all services.
func (s *Server[R, T, S]) Active() int64 { return s.active.Load() }

// Services returns the running services, and those that were removed and still have
// clients open, by name.
func (s *Server[R, T, S]) Services() []*Service[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Service[T], 0, len(s.services))
	for _, svc := range s.services {
		list = append(list, svc)
	}
	slices.SortFunc(list, func(a, b *Service[T]) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// At returns the listeners of a port that are open. It takes no lock.
func (s *Server[R, T, S]) At(port uint16) []*Listener[R, S] { return (*s.table.Load())[port] }

// publishLocked makes a new table for At.
func (s *Server[R, T, S]) publishLocked() {
	table := make(map[uint16][]*Listener[R, S], len(s.listeners))
	for _, l := range s.listeners {
		port := l.Listen.Addr.Port()
		table[port] = append(table[port], l)
	}
	s.table.Store(&table)
}

// StopAccepting takes no more clients; those that are open stay. It returns when no
// more can come, and every listener that is used no more is closed: the others are with
// their last client.
func (s *Server[R, T, S]) StopAccepting() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.listeners))
	s.mu.Unlock()
	s.retire(all, false)
	s.forget(nil)
}

// retire closes listeners as soon as they are used no more. With limited that takes a
// limited time: their clients might go on for ever.
func (s *Server[R, T, S]) retire(listeners []*Listener[R, S], limited bool) {
	var retired []*Listener[R, S]
	for _, l := range listeners {
		l.users.Add(1) // until its grace is over
		if !l.retired.Swap(true) {
			retired = append(retired, l)
		}
	}
	// Past this point no loop is in the middle of taking a client.
	s.Loops.Do(func(i int, _ *loop.Loop) {
		for _, l := range retired {
			l.Sockets[i].Retire(limited)
		}
	})
	if len(retired) > 0 {
		time.Sleep(s.protocol.Grace)
	}
	for _, l := range listeners {
		l.users.Add(-1)
	}
	s.sweep() // also those that were retired before, and have given their last client to another
	if len(retired) > 0 {
		s.Descriptors.Measure()
	}
}

// forget notes that services that are not among the present ones are configured no
// longer. No listener of theirs takes anything more.
func (s *Server[R, T, S]) forget(present map[string]*Service[T]) {
	s.mu.Lock()
	for name, svc := range s.services {
		svc.leaving.Store(present[name] == nil)
	}
	s.mu.Unlock()
	s.sweep()
}

// attend drops what becomes empty, until vacated is closed: loops must not wait for
// each other.
func (s *Server[R, T, S]) attend() {
	for range s.vacated {
		s.sweep()
	}
}

// sweep drops the services that are configured no longer and have no client open, and
// closes the listeners that are retired and used no more. It returns when they are
// closed, by this call or another.
func (s *Server[R, T, S]) sweep() {
	var mine, others []*Listener[R, S]
	s.mu.Lock()
	maps.DeleteFunc(s.services, func(_ string, svc *Service[T]) bool { return svc.leaving.Load() && svc.Active() == 0 })
	for _, l := range s.listeners {
		switch {
		case l.closing:
			others = append(others, l)
		case l.retired.Load() && !l.claimed && l.users.Load() == 0:
			l.closing = true
			mine = append(mine, l)
		}
	}
	s.mu.Unlock()
	s.close(mine...)
	s.mu.Lock()
	for _, l := range mine {
		delete(s.listeners, l.Listen)
		close(l.gone)
	}
	if len(mine) > 0 {
		s.publishLocked()
	}
	s.mu.Unlock()
	for _, l := range others {
		<-l.gone
	}
}
