package udp

import (
	"net/netip"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/wire"
)

// A session is one client at one address of ours, and one backend, owned by a loop
// from the first datagram to the l4.Session it leaves behind. It reads top to bottom
// as the life of a session: admitted, connected, (relay.go) datagrams to the backend and
// replies, (end.go) another backend in its place, the end.
type session struct {
	worker   *worker
	receiver *receiver
	route    *route
	offered  *route // of the listener, as the session last saw it
	links    [numListKinds]link
	timer    loop.Timer
	lease    balance.Lease
	admitted *admit.Policy // to be told when the client is gone
	flow     l4.Flow
	client   sock.Destination // the key in receiver.sessions
	to       sock.Destination // where replies go
	header   []byte           // PROXY; empty if none is to be sent any more

	// Times of the loop.
	start     time.Duration // first datagram
	last      time.Duration // in either direction
	lastReply time.Duration // meaningful once there is a firstByte
	chosen    time.Duration // the present backend was
	firstByte time.Duration // from then until its first reply
	left      time.Duration // meaningful while leaving: it has ended

	in, out traffic
	queue   chain  // of the tray of requests, to be sent on
	queued  uint64 // datagrams in it
	replies uint64 // of the backend, also those that could not be sent on
	connection
	lost     uint32 // see Service.overflow
	phase    phase
	outcome  l4.Outcome // while leaving: how it has ended
	by       l4.Side
	told     verdict
	waits    bool // in the worker's list of those that may be done
	bursts   bool // has been seen to have many datagrams at once
	asks     bool // the client has sent something since the last reply
	doubtful bool // in receiver.unconfirmed

	kept      *request // of its client, for another backend; see repeat.go
	spent     bool     // nothing is kept any more
	scheduled bool     // in worker.scheduled
	retries   uint8    // further backends that have got what was kept
}

// A connection is a socket of a session, connected to its backend.
type connection struct {
	fd    int32
	ports *ports // the port's budget; nil if it has none, as the ports of clients
	local netip.AddrPort
}

type phase uint8

const (
	closed  phase = iota
	open          // its client's datagrams go to its backend
	leaving       // it has ended, and is there for late replies only
)

// maxAttempts is how many backends a session tries that cannot be reached, which
// shows at once: no route, no source address of its kind.
const maxAttempts = 3

// newSession admits a client and makes its session; nil if it is refused.
func (r *receiver) newSession(client sock.Destination, route *route) *session {
	w, flow := r.worker, r.flow(client)
	switch {
	case r.listener.Retired():
		w.refusal = l4.OK
		return nil
	case route.Pool.Eligible() == 0:
		// Before the limits: clients that keep trying must not use up their rate.
		w.refuse(flow, route, l4.NoBackend)
		return nil
	}
	if o := route.Admit.Admit(flow.Client.Addr()); o != l4.OK {
		w.refuse(flow, route, o)
		return nil
	}
	// The service's limit comes last: who is turned away anyway must not cost anybody
	// a place.
	svc, limit := route.service, route.Spec.MaxSessions
	if !svc.Take(limit) && !(w.makePlace(r, svc) && svc.Take(limit)) {
		route.Admit.Release(flow.Client.Addr())
		svc.Notify(noticeServiceFull, "")
		w.refuse(flow, route, l4.RefusedLimit)
		return nil
	}
	return r.start(client, flow, route, route.Admit)
}

// start makes the session of a client that has been admitted. If it cannot, the
// client is one no more.
func (r *receiver) start(client sock.Destination, flow l4.Flow, route *route, admitted *admit.Policy) *session {
	w := r.worker
	s := w.newSession()
	s.receiver, s.client, s.to, s.flow, s.admitted = r, client, r.destination(client), flow, admitted
	s.route, s.offered = route, route
	s.in.service, s.out.service = route.service, route.service
	s.start, s.chosen, s.last, s.firstByte = w.loop.Now(), w.loop.Now(), w.loop.Now(), l4.Unreached
	if o := s.connect(nil); o != l4.OK {
		w.release(s)
		admitted.Release(flow.Client.Addr())
		route.service.Give()
		w.refuse(flow, route, o)
		return nil
	}
	s.phase, s.doubtful = open, true
	r.sessions[client] = s
	r.unconfirmed.push(s)
	r.listener.Use()
	route.service.Stats.Sessions.Add(1)
	w.loop.Start(&s.timer, route.Spec.Idle)
	s.introduce()
	return s
}

// introduce makes the session known: to its backend's counters, to the hooks, and by
// the PROXY header that the backend is to get.
func (s *session) introduce() {
	b := s.lease.Backend()
	b.Stats.Connections.Add(1)
	if s.header = s.header[:0]; s.route.SendProxy != ProxyOff {
		h := wire.ProxyV2{Datagram: true, Source: s.flow.Client, Destination: s.flow.VIP, Custom: s.route.ProxyTLVs}
		s.header = h.Append(s.header)
	}
	s.worker.server.began(b)
}

func (s *Server) began(b *balance.Backend) {
	if s.hooks.Began != nil {
		s.hooks.Began(b)
	}
}

// connect chooses a backend, another one than but, and opens a socket to it. It returns
// l4.OK, or why the client is refused; then it has left nothing behind.
func (s *session) connect(but *balance.Backend) l4.Outcome {
	w, pool := s.worker, s.route.Pool
	if !w.reserve(s.receiver) {
		return l4.NoDescriptors
	}
	o := l4.NoBackend
	var tried [maxAttempts]*balance.Backend
	for i := range tried {
		var skip func(*balance.Backend) bool
		if i > 0 || but != nil {
			skip = func(b *balance.Backend) bool { return b == but || b == tried[0] || b == tried[1] }
		}
		lease, err := pool.Acquire(s.flow, skip)
		if err != nil {
			if i == 0 && err == balance.ErrBusy {
				o = l4.RefusedLimit
				s.route.service.Notify(noticeBusy, pool.Name())
			}
			break
		}
		b := lease.Backend()
		reason := s.dial(b)
		if reason == l4.ConnectOK {
			s.lease = lease
			return l4.OK
		}
		b.Stats.ConnectFailures[reason].Add(1)
		if !reason.Local() {
			lease.Report(false, 0)
		}
		lease.Release()
		if o = outcomeOf(reason); reason.Local() {
			break
		}
		tried[i] = b
	}
	w.server.Descriptors.GiveShare(1)
	return o
}

// dial opens a socket to b.
func (s *session) dial(b *balance.Backend) l4.ConnectReason {
	addr := b.Addr().AddrPort
	source, transparent := s.route.source(s.flow, addr)
	fd, errno := -1, sock.EAGAIN
	if transparent || s.takePort() {
		fd, errno = s.choosePort(addr, source, transparent)
	}
	if sock.NoFreePort(errno) && !transparent {
		s.givePort()
		fd, errno = s.inheritPort(addr, source)
	}
	if errno == 0 {
		if errno = s.worker.loop.AddDatagrams(fd, s); errno == 0 {
			s.fd = int32(fd)
			return l4.ConnectOK
		}
		s.worker.closeSocket(fd, s.local, addr)
	}
	s.givePort()
	return reasonOf(errno)
}

// source returns the address that datagrams of f to a backend come from.
func (r *route) source(f l4.Flow, backend netip.AddrPort) (source netip.Addr, transparent bool) {
	if r.Transparent && f.CanAppearTo(backend.Addr()) {
		return f.Client.Addr(), true
	}
	return r.Source, false
}

func reasonOf(errno sock.Errno) l4.ConnectReason {
	switch errno {
	case sock.EAGAIN, sock.EADDRNOTAVAIL, sock.EADDRINUSE: // EAGAIN: connect found no free port
		return l4.ConnectNoLocalPort
	case sock.EMFILE, sock.ENFILE, sock.ENOBUFS, sock.ENOMEM, sock.ENOSPC: // ENOSPC: fs.epoll.max_user_watches
		return l4.ConnectNoDescriptors
	}
	return l4.ConnectUnreachable
}

func outcomeOf(r l4.ConnectReason) l4.Outcome {
	switch r {
	case l4.ConnectNoLocalPort:
		return l4.NoLocalPort
	case l4.ConnectNoDescriptors:
		return l4.NoDescriptors
	}
	return l4.ConnectFailed
}
