package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
)

// A Change is a set of routes that is ready to run: everything that can fail has
// been done. Exactly one of Commit and Abort must be called; until then no other
// change can be prepared.
type Change struct {
	server *Server
	routes map[l4.Listen]Route
	specs  []Route
	opened []*listener // bound, not listening yet
}

// Prepare binds the addresses of routes that are not open yet. The routes are
// all that is to run after Commit, not a difference. Addresses must not overlap.
// On error nothing has changed, and the error names the address and a remedy.
func (s *Server) Prepare(routes []Route) (*Change, error) {
	s.changing.Lock()
	c := &Change{server: s, routes: map[l4.Listen]Route{}, specs: routes}
	var errs []error
	for _, r := range routes {
		for _, l := range r.Spec.Listen {
			c.routes[l] = r
			if s.listener(l) != nil {
				continue
			}
			opened, err := s.bind(l, r.Spec)
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
	return c, nil
}

func (s *Server) listener(l l4.Listen) *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners[l]
}

// bind opens a socket for l on every worker.
func (s *Server) bind(l l4.Listen, spec Spec) (*listener, error) {
	o := listenOptions(l, spec)
	if !s.overlaps(l.Addr) {
		// Sockets that share an address share it with any process of this user
		// that asks to. One that does not share finds out who is there already.
		o.Share = false
		fd, err := sock.Bind(l.Addr, o)
		if err != nil {
			return nil, bindError(l, spec, err)
		}
		sock.Close(fd)
	}
	o.Share = true
	ln := &listener{listen: l}
	for _, w := range s.workers {
		fd, err := sock.Bind(l.Addr, o)
		if err != nil {
			ln.discard()
			return nil, bindError(l, spec, err)
		}
		a := &acceptor{worker: w, listener: ln, fd: fd}
		a.timer.Owner = a
		ln.sockets = append(ln.sockets, a)
	}
	ln.gone.Add(len(ln.sockets))
	return ln, nil
}

// overlaps reports whether a socket of ours is on the same port already and
// would be in the way of one that does not share: the wildcard address gives way
// to a specific one, or the other way round.
func (s *Server) overlaps(addr netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if l.Addr.Port() == addr.Port() {
			return true
		}
	}
	return false
}

func listenOptions(l l4.Listen, spec Spec) sock.ListenOptions {
	o := sock.ListenOptions{BindOptions: sock.BindOptions{V6Only: l.V6Only, Freebind: spec.Freebind}}
	o.KeepaliveIdle, o.KeepaliveInterval, o.KeepaliveProbes = spec.Keepalive.seconds()
	return o
}

func bindError(l l4.Listen, spec Spec, err error) error {
	return fmt.Errorf("service %s: listen %s: %w%s", spec.Name, l, err, sock.BindRemedy(err, l.Addr.Port(), "ss -ltnp"))
}

// discard closes sockets that no loop knows of.
func (l *listener) discard() {
	for _, a := range l.sockets {
		sock.Close(a.fd)
	}
}

// Abort gives up the change; what runs goes on untouched.
func (c *Change) Abort() {
	for _, l := range c.opened {
		l.discard()
	}
	c.server.changing.Unlock()
}

// Commit makes the routes run. Listeners that stay are not re-opened, and open
// connections go on under the settings they began with. It returns when new
// listeners accept, and removed ones have emptied their queues and are closed: a
// next change may open the same address again.
func (c *Change) Commit() {
	s := c.server
	defer s.changing.Unlock()

	s.mu.Lock()
	services := map[string]*Service{}
	for _, r := range c.specs {
		svc := s.services[r.Spec.Name]
		if svc == nil {
			svc = &Service{Name: r.Spec.Name}
			s.services[r.Spec.Name] = svc
		}
		svc.leaving.Store(false)
		services[svc.Name] = svc
	}
	for name, svc := range s.services {
		if services[name] == nil {
			svc.leaving.Store(true)
		}
	}
	var retired []*listener
	for key, l := range s.listeners {
		if _, stays := c.routes[key]; !stays {
			delete(s.listeners, key)
			retired = append(retired, l)
			l.replaced = c.overlaps(key)
		}
	}
	for _, l := range c.opened {
		s.listeners[l.listen] = l
	}
	for key, r := range c.routes {
		s.listeners[key].setRoute(newRoute(r, services[r.Spec.Name]))
	}
	s.mu.Unlock()

	s.descriptors.Measure()
	var begun sync.WaitGroup
	for _, l := range c.opened {
		for _, a := range l.sockets {
			begun.Add(1)
			if !a.worker.loop.Post(func() { a.begin(); begun.Done() }) {
				sock.Close(a.fd)
				l.gone.Done()
				begun.Done()
			}
		}
	}
	begun.Wait()
	// Only now: clients that an old listener turns away may be those of a new one.
	s.withdraw(retired)
	for _, l := range retired {
		l.retire()
	}
	for _, l := range retired {
		l.gone.Wait()
	}
	if len(retired) > 0 {
		s.descriptors.Measure()
	}
}

// withdraw takes listeners that are replaced out of the kernel's choice, all sockets of
// one in a row: as long as one is left the kernel chooses between all of them, and a
// socket that is withdrawn drops what it gets.
func (s *Server) withdraw(listeners []*listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range listeners {
		if !l.replaced || s.closed {
			continue
		}
		for _, a := range l.sockets {
			if a.fd >= 0 && sock.Withdraw(a.fd) != 0 {
				l.replaced = false // SYNs are dropped then
			}
		}
	}
}

// overlaps reports whether clients of l can mean one of the listeners to be.
func (c *Change) overlaps(l l4.Listen) bool {
	for o := range c.routes {
		if o.Overlaps(l) {
			return true
		}
	}
	return false
}

// setRoute makes r the route of connections accepted from now on.
func (l *listener) setRoute(r *route) {
	before := l.route.Swap(r)
	if before == nil || before.Spec.Keepalive == r.Spec.Keepalive {
		return
	}
	o := listenOptions(l.listen, r.Spec)
	for _, a := range l.sockets {
		a.worker.loop.Post(func() {
			if a.fd >= 0 {
				o.SetInherited(a.fd)
			}
		})
	}
}
