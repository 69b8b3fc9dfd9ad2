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
//	s := udp.NewServer(host, udp.Hooks{Ended: record})
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
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
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
	*listening

	// Set once.
	hooks    Hooks
	workers  []*worker
	steering uint32 // see sock.Steer

	equipping sync.Mutex // guards the following; loops get what they need with their routes
	ports     map[netip.Addr]*ports
	// Nil until there is a route, and never changed afterwards.
	rests   *rests
	sockets *sockets
}

// NewServer makes a server on the loops of a host.
func NewServer(host service.Host, h Hooks) *Server {
	s := &Server{
		hooks:    h,
		workers:  make([]*worker, len(host.Loops)),
		steering: rand.Uint32() | 1,
		ports:    map[netip.Addr]*ports{},
	}
	s.listening = service.New[route, ServiceStats](host, service.Protocol[route, *receiver]{
		Proto:   l4.UDP,
		Notices: notices[:],
		Worker: func(i int, l *loop.Loop) service.Worker {
			s.workers[i] = newWorker(s, i, l)
			return s.workers[i]
		},
		Sockets: s.receivers,
		Lend:    s.lend,
		Succeed: s.succeed,
	})
	return s
}

// Repeat is to be called when b has gone down: what it has not answered goes to other
// backends, where the service has it so (Spec.Retry). It does not wait.
func (s *Server) Repeat(b *balance.Backend) {
	s.Loops.Each(func(i int) { s.workers[i].repeatAll(b) })
}
