package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A Change is a set of routes that is ready to run: everything that can fail has
// been done. Exactly one of Commit and Abort must be called; until then no other
// change can be prepared.
type Change struct {
	server  *Server
	ports   map[netip.Addr]*ports
	routes  map[l4.Listen]Route
	specs   []Route
	opened  []*listener // bound, not served yet
	claimed []*listener // were about to close
}

// Prepare binds the addresses of routes that are not open yet. The routes are all
// that is to run after Commit, not a difference. Addresses must not overlap. On
// error nothing has changed, and the error names the address and a remedy. What
// comes to a new address from now on waits for Commit; what came to one that is open
// so far, as a wildcard, goes on as before.
func (s *Server) Prepare(routes []Route) (*Change, error) {
	s.changing.Lock()
	c := &Change{server: s, ports: s.portsOf(routes), routes: map[l4.Listen]Route{}, specs: routes}
	if s.rests == nil && len(routes) > 0 {
		s.rests, s.sockets = newRests(), newSockets() // a few MiB, not needed where there is only TCP
	}
	var errs []error
	for _, r := range routes {
		for _, l := range r.Spec.Listen {
			c.routes[l] = r
			if c.claim(l) {
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
	for _, l := range c.opened {
		s.lend(l)
	}
	return c, nil
}

// claim reports whether l is open, and keeps it so until the change is over.
func (c *Change) claim(l l4.Listen) bool {
	s := c.server
	s.mu.Lock()
	ln := s.listeners[l]
	if ln == nil || ln.closing {
		s.mu.Unlock()
		if ln != nil {
			<-ln.gone
		}
		return false
	}
	ln.claimed = true
	s.mu.Unlock()
	c.claimed = append(c.claimed, ln)
	return true
}

// socketBuffer is the kernel memory of a listener's socket in each direction: bursts
// wait there while its loop is busy, or the network card. 4 MiB is some 5000 small
// datagrams.
const socketBuffer = 4 << 20

// bind opens a socket for l on every worker.
func (s *Server) bind(l l4.Listen, spec Spec) (*listener, error) {
	o := sock.UDPOptions{
		BindOptions: sock.BindOptions{V6Only: l.V6Only, Freebind: spec.Freebind},
		LocalAddr:   l.Addr.Addr().IsUnspecified() || sock.IsShared(l.Addr.Addr()),
		Buffer:      socketBuffer,
	}
	if !s.overlaps(l.Addr) {
		// Sockets that share an address share it with any process of this user
		// that asks to. One that does not share finds out who is there already.
		fd, err := sock.BindUDP(l.Addr, o)
		if err != nil {
			return nil, bindError(l, spec, err)
		}
		sock.Close(fd)
	}
	o.Share = true
	ln := &listener{listen: l, gone: make(chan struct{})}
	for _, w := range s.workers {
		fd, err := sock.BindUDP(l.Addr, o)
		if err != nil {
			ln.discard()
			return nil, bindError(l, spec, err)
		}
		ln.receivers = append(ln.receivers, newReceiver(w, ln, fd))
	}
	// In this moment the first ones get the others' clients, too. At worst a datagram
	// gets a session of its own.
	if n := len(s.workers); n > 1 {
		// Should the kernel say no, clients stay where they are for as long as the
		// sockets do.
		sock.Steer(ln.receivers[0].fd, n, s.steering)
	}
	return ln, nil
}

// overlaps reports whether a socket of ours is on the same port already and would be
// in the way of one that does not share.
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

func bindError(l l4.Listen, spec Spec, err error) error {
	return fmt.Errorf("service %s: listen %s: %w%s", spec.Name, l, err, sock.BindRemedy(err, l.Addr.Port(), "ss -lunp"))
}

// discard closes sockets that no loop knows of.
func (l *listener) discard() {
	for _, r := range l.receivers {
		sock.Close(r.fd)
	}
}

// Abort gives up the change; what runs goes on untouched.
func (c *Change) Abort() {
	for _, l := range c.opened {
		c.server.lend(l) // what is in its queues may be another's
		if l.open {
			c.server.close(l)
		} else {
			l.discard()
		}
	}
	c.server.unclaim(c.claimed)
	c.server.changing.Unlock()
}

// Commit makes the routes run. Sockets that stay are not re-opened, nor moved to
// other loops; open sessions take up the new settings with their client's next
// datagram. A removed listener makes no new sessions; its sockets are closed with its
// last session, which is one idle limit later at most. Where another listener has its
// clients' addresses, as a wildcard or as a part of one, that has its sessions at once.
// Commit returns when all loops have heard.
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
	var old, present []*listener
	for key, l := range s.listeners {
		if _, stays := c.routes[key]; !stays {
			old = append(old, l)
		}
	}
	for _, l := range c.opened {
		s.opened++
		l.number = s.opened
		s.listeners[l.listen] = l
	}
	s.publishLocked()
	for key, r := range c.routes {
		l := s.listeners[key]
		l.route.Store(&route{Route: r, service: services[r.Spec.Name], ports: c.ports[r.Source]})
		l.retired.Store(false)
		present = append(present, l)
	}
	s.mu.Unlock()

	s.descriptors.Measure()
	s.begin(c.opened)
	s.succeed(old, present)
	s.unclaim(c.claimed)
	// Only now: until it has heirs, an old listener takes new clients as before.
	var retired []*listener
	for _, l := range old {
		if !l.retired.Swap(true) {
			retired = append(retired, l)
		}
	}
	s.retire(retired, true)
	s.closeAllVacant() // also those that were retired before, and have given their last session to an heir
	if len(retired) > 0 {
		s.descriptors.Measure()
	}
}

// begin has the loops take what comes to listeners.
func (s *Server) begin(listeners []*listener) {
	var begun sync.WaitGroup
	for _, l := range listeners {
		if l.open {
			continue
		}
		l.open = true
		for _, r := range l.receivers {
			begun.Add(1)
			if !r.worker.loop.Post(func() { r.begin(); begun.Done() }) {
				sock.Close(r.fd)
				begun.Done()
			}
		}
	}
	begun.Wait()
}

// unclaim ends what claim began. A listener whose last session has ended meanwhile
// is closed if it is still to go.
func (s *Server) unclaim(listeners []*listener) {
	s.mu.Lock()
	for _, l := range listeners {
		l.claimed = false
	}
	s.mu.Unlock()
	s.closeVacant(listeners)
}

// retire has listeners marked as retired make no more sessions, and closes those
// that have none. A limited one ends those it has after one idle limit: their clients
// might go on for ever.
func (s *Server) retire(listeners []*listener, limited bool) {
	// Past this point no loop is in the middle of making one.
	s.loops.Do(func(i int, _ *loop.Loop) {
		for _, l := range listeners {
			l.receivers[i].retire(limited)
		}
	})
	s.closeVacant(listeners)
}

// closeVacant closes those of some listeners that are retired and have no sessions.
func (s *Server) closeVacant(listeners []*listener) {
	closed := false
	for _, l := range listeners {
		closed = s.closeIfVacant(l) || closed
	}
	if closed {
		s.mu.Lock()
		s.publishLocked()
		s.mu.Unlock()
	}
}

func (s *Server) closeIfVacant(l *listener) (closed bool) {
	s.mu.Lock()
	vacant := l.retired.Load() && !l.claimed && !l.closing && l.sessions.Load() == 0
	l.closing = l.closing || vacant
	s.mu.Unlock()
	if !vacant {
		return false
	}
	s.close(l)
	s.mu.Lock()
	delete(s.listeners, l.listen)
	s.mu.Unlock()
	close(l.gone)
	return true
}

// attend closes what becomes vacant, until vacated is closed: loops must not wait for
// each other.
func (s *Server) attend() {
	for range s.vacated {
		s.closeAllVacant()
	}
}

// closeAllVacant closes every listener that has become vacant.
func (s *Server) closeAllVacant() {
	s.mu.Lock()
	var retired []*listener
	for _, l := range s.listeners {
		if l.retired.Load() {
			retired = append(retired, l)
		}
	}
	s.mu.Unlock()
	s.closeVacant(retired)
}
