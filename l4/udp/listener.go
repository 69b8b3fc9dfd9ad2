package udp

import (
	"net/netip"
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A listener is one address; every worker has a socket of its own for it, and the
// kernel spreads clients over them (SO_REUSEPORT), by a hash that stays the same as
// long as the sockets do. So they are opened and closed together, and stay open for
// as long as any service listens there.
type listener struct {
	listen    l4.Listen
	route     atomic.Pointer[route]
	receivers []*receiver // one per worker, in their order
	retired   atomic.Bool // makes no new sessions, and goes when it has none
	sessions  atomic.Int64
	gone      chan struct{} // closed when the sockets are

	// Guarded by the server's mu.
	claimed bool // by a change that is being prepared
	closing bool
}

// A receiver is a worker's socket of a listener and the sessions of the clients that
// the kernel gives to it, owned by its loop.
type receiver struct {
	worker   *worker
	listener *listener
	fd       int // -1 when closed
	sessions map[sock.Destination]*session
	// unconfirmed are those that have got one datagram and sent no reply.
	unconfirmed sessionList
	replies     chain  // to be sent at the end of the round
	lost        uint32 // see Service.overflow
	timer       loop.Timer
}

func newReceiver(w *worker, l *listener, fd int) *receiver {
	r := &receiver{worker: w, listener: l, fd: fd, sessions: map[sock.Destination]*session{}}
	r.unconfirmed.kind = special
	r.timer.Owner = r
	return r
}

// begin starts to take datagrams. It runs on the loop. All that can be wrong with the
// socket has been found out when it was bound; should the kernel still say no, the
// operator hears of it and the other workers' sockets serve.
func (r *receiver) begin() {
	w := r.worker
	if w.down {
		sock.Close(r.fd)
		r.fd = -1
		return
	}
	w.equip()
	w.receivers[r] = struct{}{}
	if errno := w.loop.AddDatagrams(r.fd, r); errno != 0 {
		w.server.notify(r.listener.route.Load().service, noticeReceive, errno.Error())
		r.close() // a socket nobody reads would swallow its share of clients
	}
}

// Ready takes the datagrams that are waiting.
func (r *receiver) Ready(sock.Events) {
	w := r.worker
	for more := true; more; more = !w.loop.Enough() {
		if r.fd < 0 {
			return
		}
		n, errno := w.requests.Receive(r.fd, 0, w.requests.Len())
		switch {
		case errno == sock.EAGAIN:
			return
		case errno != 0:
			// Nothing that concerns this socket: it has no peer. What is there is
			// still there.
			w.server.notify(r.listener.route.Load().service, noticeReceive, errno.Error())
			continue
		}
		r.take(n)
		if n < w.requests.Len() {
			return
		}
	}
	w.loop.Again(r.fd, sock.Readable)
}

// take finds the sessions of the first n datagrams in the tray and sends them on.
func (r *receiver) take(n int) {
	w, in := r.worker, r.worker.requests
	route := r.listener.route.Load()
	var from sock.Destination
	var s *session
	for i := range n {
		local, segment := in.Details(i)
		size := len(in.Payload(i))
		in.segments[i] = segment
		if !in.Whole(i) {
			route.service.drop(DropTooLarge, 1)
			continue
		}
		client := sock.Destination{Peer: in.Peer(i), From: local}
		if route.Spec.Spray {
			w.spray(r, route, client, i)
			continue
		}
		// Datagrams of one client often come one after the other.
		if s == nil || client != from {
			s, from = r.sessionOf(client, route), client
		}
		if s == nil {
			route.service.drop(DropRefused, datagrams(size, segment))
			continue
		}
		s.takes(i)
	}
	w.forward()
}

// sessionOf returns the session of a client that has sent something, a new one if it
// has none or its backend is out; nil if none can be made.
func (r *receiver) sessionOf(client sock.Destination, route *route) *session {
	s := r.sessions[client]
	switch {
	case s == nil:
		return r.newSession(client, route)
	case s.route != route && !s.takeUp(route), !s.welcome():
		return s.replace(route)
	}
	return s
}

// flow describes what a client sends.
func (r *receiver) flow(client sock.Destination) l4.Flow {
	f := l4.Flow{Proto: l4.UDP, Client: client.Peer.AddrPort(), VIP: r.listener.listen.Addr}
	if a := client.From.Addr(); a.IsValid() {
		f.VIP = netip.AddrPortFrom(a, f.VIP.Port())
	}
	return f
}

// retire follows when the listener is retired: no sessions are made any more. A
// limited one ends those that are left after one idle limit.
func (r *receiver) retire(limited bool) {
	if limited && r.fd >= 0 {
		r.worker.loop.Start(&r.timer, r.listener.route.Load().Spec.Idle)
	}
}

// Expired ends the grace of a listener that was removed.
func (r *receiver) Expired(*loop.Timer) {
	if !r.listener.retired.Load() {
		return // it is configured again
	}
	r.worker.endAll(l4.Drained, func(s *session) bool { return s.receiver == r })
}

// close closes the socket and ends what sessions it still has.
func (r *receiver) close() {
	w := r.worker
	if r.fd < 0 {
		return
	}
	w.endAll(l4.Drained, func(s *session) bool { return s.receiver == r })
	w.loop.StopTimer(&r.timer)
	r.flushCounts()
	w.loop.Remove(r.fd)
	sock.Close(r.fd)
	r.fd = -1
	delete(w.receivers, r)
}

func (r *receiver) flushCounts() { r.listener.route.Load().service.overflow(r.fd, &r.lost) }
