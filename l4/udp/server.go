// Package udp is the UDP data path: sockets, the life of one session, datagrams
// that are balanced one by one.
//
// A session is what one client sends to one of this host's addresses and what comes
// back. It has a socket of its own towards its backend, connected, so that replies
// find their client by the port they come to. It belongs to the event loop whose
// socket the kernel gives that client's datagrams to. Nothing on the way of a
// datagram takes a lock, allocates, or touches what another core writes; datagrams
// are received and sent many at a time.
//
//	s := udp.NewServer(loops, descriptors, log, udp.Hooks{Ended: record})
//	change, err := s.Prepare([]udp.Route{{Spec: spec, Pool: pool}})
//	change.Commit()
//
// A reload is Prepare and Commit again with the routes that shall run from then on:
// sockets that stay are not touched, and the kernel keeps every client on its loop.
//
// # What ends a session
//
//   - ok: the backend has sent spec.Replies for each datagram, or has answered at
//     all before the session was idle. To fall silent is the normal end in UDP.
//   - idle: silence, and the backend had never answered, or has refused what the client
//     sent last (an ICMP error). It is by the backend then: it was its turn. Or, by the
//     proxy, it gave way to a new client before the limit.
//   - backend_down: its backend is not eligible any more. The client's next datagram
//     is what finds out, and goes to another one.
//   - drained, killed: by Kill and CloseBackend, or one idle limit after its listener
//     was removed.
//
// A drained backend (flag Drained, or weight 0) keeps the sessions it answers, as
// long as it answers; one-way senders, which might never pause, go elsewhere at once.
//
// A session that ends while replies may be under way, because the client has sent
// something since the last one or more are due, leaves: it is open no more, and its
// socket stays to bring late replies to its own client. That lasts until replies can no
// longer come: two seconds after its end, and after the time a reply may take, which is
// spec.Idle from the client's last datagram on and ten seconds at most. If the socket
// is closed before, because the session was killed or had to make room, its port rests
// for as long: no session gets it that has the same backend. A newcomer is refused if
// no other port is left. A process that is started again knows nothing of the ports
// of the one before.
//
// # What bounds sessions
//
// Each has a descriptor and, towards its backend, a local port. Sessions of all
// services have at most half of the process's descriptors and three quarters of the
// ports at each source address, so that a flood of invented clients leaves others
// something. At these limits, and a service's own, a new client takes the place of
// the oldest session of its loop that leaves or has had one datagram and no reply. For a
// port that has to be a session with another backend.
//
// Without a session, a datagram for which none can be made is dropped and counted by
// outcome, and the next one tries again. Hooks.Ended hears of such a client at most
// once a second for each outcome: a log line for every datagram would be a gift to
// whoever floods.
//
// # ICMP errors
//
// They are hints: they reach Hooks.Refused and the balancer, and nothing is torn down
// for them; with spec.Retry, requests without a reply go to another backend (repeat.go). Linux reports the error of an earlier datagram on the next call of the
// socket; that call is made once more.
package udp

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/notice"
	"github.com/poise-lb/poise/l4/sock"
)

// Hooks tell the rest of the system what happens on the loops. All are called on a
// loop: they must return at once and may be called from several at a time. Any may
// be nil.
type Hooks struct {
	// Began reports that a session has begun with b, also when b is the second backend
	// of a repeated request, or, of a Spray service, that a datagram was a half-open
	// backend's trial. Where a protocol has no answers, to go on
	// without being refused is all the good that will ever be known of a backend.
	Began func(b *balance.Backend)
	// Answered reports a backend's first reply in a session, and its first after
	// each time that Refused was called for the session.
	Answered func(b *balance.Backend, ok bool)
	// Refused reports an ICMP error: nothing listens at the backend's port.
	Refused func(b *balance.Backend)
	// Ended reports a session that is over, and now and then a client for whom none
	// could be made. The Session is the loop's: copy what is kept.
	Ended func(*l4.Session)
}

// Server owns the sockets and sessions of all UDP services.
type Server struct {
	// Set once.
	hooks       Hooks
	loops       loop.Group
	descriptors *sock.Descriptors
	workers     []*worker
	notices     *notice.Writer
	vacated     chan struct{} // a retired listener has lost its last session
	steering    uint32        // see sock.Steer
	attending   sync.WaitGroup

	active atomic.Int64
	bound  atomic.Pointer[bound]

	changing sync.Mutex // held from Prepare to Commit or Abort; guards the following
	ports    map[netip.Addr]*ports
	// Nil until there is a route, which loops get them with.
	rests   *rests
	sockets *sockets

	mu        sync.Mutex // guards the following
	listeners map[l4.Listen]*listener
	services  map[string]*Service
	opened    uint64 // listeners so far
	closed    bool
}

// NewServer makes a server of the given loops, which must be running and stay the
// caller's: they may have other work too, and are to be stopped after Close.
// The descriptors are what the whole data path may use.
func NewServer(loops loop.Group, descriptors *sock.Descriptors, log *slog.Logger, h Hooks) *Server {
	s := &Server{
		hooks:       h,
		loops:       loops,
		descriptors: descriptors,
		workers:     make([]*worker, len(loops)),
		notices:     notice.NewWriter(log),
		vacated:     make(chan struct{}, 1),
		steering:    rand.Uint32() | 1,
		ports:       map[netip.Addr]*ports{},
		listeners:   map[l4.Listen]*listener{},
		services:    map[string]*Service{},
	}
	loops.Do(func(i int, l *loop.Loop) { s.workers[i] = newWorker(s, i, l) })
	s.attending.Go(s.attend)
	return s
}

// Close ends what the server does on its loops; sessions that are still open are
// killed. Nothing else may be called afterwards but the readers of counters.
func (s *Server) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	s.loops.Do(func(i int, _ *loop.Loop) { s.workers[i].shut() })
	close(s.vacated)
	s.attending.Wait()
	s.notices.Close()
}

// StopAccepting makes no more sessions. Open ones go on; the sockets of a listener
// are closed with its last session, and until then nobody else's datagrams get an
// answer. It returns when no loop makes sessions any more.
func (s *Server) StopAccepting() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	var retired []*listener
	for _, l := range s.listeners {
		if !l.retired.Swap(true) {
			retired = append(retired, l)
		}
	}
	for _, svc := range s.services {
		svc.leaving.Store(true)
	}
	s.mu.Unlock()
	s.retire(retired, false)
}

// Kill ends all sessions with outcome o. It does not wait.
func (s *Server) Kill(o l4.Outcome) {
	s.each(func(w *worker) { w.endAll(o, func(*session) bool { return true }) })
}

// CloseBackend ends the sessions of b with outcome o, evenly over the time spread (0
// = at once); those that come later are left alone. Clients that go on get another
// backend, or b again if it is eligible. It does not wait.
func (s *Server) CloseBackend(b *balance.Backend, o l4.Outcome, spread time.Duration) {
	called := time.Now()
	s.each(func(w *worker) { w.closeBackend(b, o, spread, called) })
}

// Repeat is to be called when b has gone down: what it has not answered goes to other
// backends, where the service has it so (Spec.Retry). It does not wait.
func (s *Server) Repeat(b *balance.Backend) {
	s.each(func(w *worker) { w.desert(b) })
}

// Flush adds what open sessions have moved so far to the counters, which otherwise
// learn of it when a session ends. It gives up on a loop that does not answer within
// a second.
func (s *Server) Flush() {
	s.loops.Within(time.Second, func(i int) { s.workers[i].flushCounts() })
}

func (s *Server) each(f func(*worker)) { s.loops.Each(func(i int) { f(s.workers[i]) }) }

// Active returns the number of open sessions.
func (s *Server) Active() int64 { return s.active.Load() }

// Services returns the running services and those that were removed and still have
// open sessions, by name.
func (s *Server) Services() []*Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Service, 0, len(s.services))
	for name, svc := range s.services {
		if svc.leaving.Load() && svc.Active() == 0 {
			delete(s.services, name)
			continue
		}
		list = append(list, svc)
	}
	slices.SortFunc(list, func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
