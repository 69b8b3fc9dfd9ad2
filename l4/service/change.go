package service

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/notice"
	"github.com/poise-lb/poise/l4/sock"
)

// A Plan is a service as it is to run.
type Plan[R, T any] struct {
	Name   string
	Listen []l4.Listen
	// Bind opens a socket bound to one of the addresses. With share, several sockets of
	// this process have the address.
	Bind func(l l4.Listen, share bool) (fd int, err error)
	// Adopt makes a socket that is bound to one of them as Bind would have made it.
	Adopt func(l l4.Listen, fd int) error
	// Route makes what the listeners do with what comes.
	Route func(*Service[T]) *R
}

// A Change is a set of services that is ready to run: everything that can fail has been
// done. Exactly one of Commit and Abort must be called; until then no other change can
// be prepared.
type Change[R, T any, S Socket] struct {
	server  *Server[R, T, S]
	plans   []Plan[R, T]
	opened  []*Listener[R, S] // bound, not served yet
	claimed []*Listener[R, S] // stay open until the change is over
}

// Prepare binds the addresses of plans that are not open yet. The plans are all that is
// to run after Commit, not a difference. Addresses must not overlap. On error nothing
// has changed, and the error names the address and a remedy.
func (s *Server[R, T, S]) Prepare(plans []Plan[R, T]) (*Change[R, T, S], error) {
	s.changing.Lock()
	c := &Change[R, T, S]{server: s, plans: plans}
	var errs []error
	for _, p := range plans {
		for _, l := range p.Listen {
			if c.claim(l) {
				continue
			}
			opened, err := s.bind(l, p)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			c.opened = append(c.opened, opened)
		}
	}
	if len(errs) > 0 {
		c.Abort()
		return nil, errors.Join(errs...)
	}
	c.lend()
	return c, nil
}

// claim reports whether l is open, and keeps it so until the change is over.
func (c *Change[R, T, S]) claim(at l4.Listen) bool {
	s := c.server
	s.mu.Lock()
	l := s.listeners[at]
	if l == nil || l.closing {
		s.mu.Unlock()
		if l != nil {
			<-l.gone
		}
		return false
	}
	l.claimed = true
	s.mu.Unlock()
	c.claimed = append(c.claimed, l)
	return true
}

// unclaim ends what claim began. A listener whose last client has gone meanwhile is
// closed if it is still to go.
func (c *Change[R, T, S]) unclaim() {
	s := c.server
	s.mu.Lock()
	for _, l := range c.claimed {
		l.claimed = false
	}
	s.mu.Unlock()
	s.sweep()
}

// bind makes a listener at the address, of a socket for every worker.
func (s *Server[R, T, S]) bind(at l4.Listen, p Plan[R, T]) (*Listener[R, S], error) {
	fds, err := s.open(at, p)
	if err != nil {
		for _, fd := range fds {
			closeIfOpen(fd)
		}
		command := "ss -ltnp"
		if s.protocol.Proto == l4.UDP {
			command = "ss -lunp"
		}
		return nil, fmt.Errorf("service %s: listen %s: %w%s", p.Name, at, err, sock.BindRemedy(err, at.Addr.Port(), command))
	}
	l := &Listener[R, S]{Listen: at, Passed: len(s.passedAt(at)) > 0, server: &s.state, gone: make(chan struct{})}
	l.Sockets = s.protocol.Sockets(l, fds)
	return l, nil
}

func closeIfOpen(fd int) {
	if fd >= 0 {
		sock.Close(fd)
	}
}

// open returns the sockets that it has opened, also if it fails.
func (s *Server[R, T, S]) open(at l4.Listen, p Plan[R, T]) (fds []int, err error) {
	if passed := s.passedAt(at); len(passed) > 0 {
		return s.share(passed, at, p)
	}
	if !s.overlaps(at.Addr) {
		// Sockets that share an address share it with any process of this user
		// that asks to. One that does not share finds out who is there already.
		fd, err := p.Bind(at, false)
		if err != nil {
			return nil, err
		}
		sock.Close(fd)
	}
	for range s.workers {
		fd, err := p.Bind(at, true)
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// overlaps reports whether a socket of ours is on the same port already and would be in
// the way of one that does not share: the wildcard address gives way to a specific one,
// or the other way round.
func (s *Server[R, T, S]) overlaps(addr netip.AddrPort) bool { return len(s.At(addr.Port())) > 0 }

// lend has listeners serve at once of which another one has all addresses: the kernel
// gives their clients to them already. They stay the other's.
func (c *Change[R, T, S]) lend() {
	s := c.server
	if s.protocol.Lend == nil {
		return
	}
	for _, l := range c.opened {
		if by := s.covering(l.Listen); len(by) > 0 && !l.served {
			l.served = true
			l.route.Store(by[0].Route())
			s.protocol.Lend(l, by)
		}
	}
}

// covering returns the listeners that take whatever at takes, retired ones last.
func (s *Server[R, T, S]) covering(at l4.Listen) (list []*Listener[R, S]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		switch {
		case l.closing || !l.Listen.Covers(at):
		case l.Retired():
			list = append(list, l)
		default:
			list = append([]*Listener[R, S]{l}, list...)
		}
	}
	return list
}

// Abort gives up the change; what runs goes on untouched.
func (c *Change[R, T, S]) Abort() {
	c.lend() // what is in the queues may be another's
	for _, l := range c.opened {
		if l.served {
			c.server.close(l)
			continue
		}
		for _, k := range l.Sockets {
			closeIfOpen(k.Descriptor()) // no loop knows of it
		}
	}
	c.unclaim()
	c.server.changing.Unlock()
}

// Commit makes the plans run. Listeners that stay are not re-opened, nor moved to other
// loops. It returns when new listeners are served, and removed ones take no more clients
// and those that are not used are closed: a next change may open the same address again.
func (c *Change[R, T, S]) Commit() {
	s := c.server
	defer s.changing.Unlock()

	s.mu.Lock()
	for _, l := range c.opened {
		s.opened++
		l.Number = s.opened
		s.listeners[l.Listen] = l
	}
	services, present := s.routeLocked(c.plans)
	stays := map[*Listener[R, S]]bool{}
	for _, l := range present {
		stays[l] = true
	}
	old := slices.DeleteFunc(slices.Collect(maps.Values(s.listeners)), func(l *Listener[R, S]) bool { return stays[l] })
	s.publishLocked()
	s.mu.Unlock()

	s.Descriptors.Measure()
	s.serve(c.opened)
	s.protocol.Succeed(old, present)
	c.unclaim()
	// Only now: clients that an old listener turns away may be those of a new one.
	s.retire(old, true)
	s.forget(services)
}

// routeLocked gives listeners the routes of plans, and returns the services and the
// listeners that these have.
func (s *Server[R, T, S]) routeLocked(plans []Plan[R, T]) (map[string]*Service[T], []*Listener[R, S]) {
	services, present := map[string]*Service[T]{}, []*Listener[R, S]{}
	for _, p := range plans {
		svc := s.services[p.Name]
		if svc == nil {
			svc = &Service[T]{Name: p.Name, server: &s.state, gates: make([]notice.Gate, len(s.kinds))}
			s.services[p.Name] = svc
		}
		svc.leaving.Store(false)
		services[p.Name] = svc
		route := p.Route(svc)
		for _, at := range p.Listen {
			l := s.listeners[at]
			l.route.Store(route)
			l.retired.Store(false)
			present = append(present, l)
		}
	}
	return services, present
}

// serve has the loops take what comes to listeners.
func (s *Server[R, T, S]) serve(listeners []*Listener[R, S]) {
	var begun sync.WaitGroup
	for _, l := range listeners {
		if l.served {
			continue
		}
		l.served = true
		for i, k := range l.Sockets {
			begun.Add(1)
			if !s.Loops[i].Post(func() { k.Begin(); begun.Done() }) {
				closeIfOpen(k.Descriptor())
				begun.Done()
			}
		}
	}
	begun.Wait()
}
