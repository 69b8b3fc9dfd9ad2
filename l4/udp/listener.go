package udp

import (
	"net/netip"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
)

// What package service does for UDP. The kernel gives each client always to the same
// worker; see sock.Steer. A listener is used by its sessions.
type (
	listening = service.Server[route, ServiceStats, *receiver]
	listener  = service.Listener[route, *receiver]
	plan      = service.Plan[route, ServiceStats]
)

// A receiver is a worker's socket of a listener, owned by its loop. It takes the
// datagrams of the clients that the kernel gives to it, and replies leave by it.
type receiver struct {
	worker   *worker
	listener *listener
	fd       int        // -1 when closed, and if the worker has none
	ipv4     bool       // the socket's family
	behind   bool       // there may be something that came before begin
	at       sock.Local // its address; zero for a wildcard, where each datagram tells
	// sessions are those of the worker at this port, at whichever address; see client.
	sessions map[sock.Destination]*session
	heirs    []*receiver // see heirOf
	// unconfirmed are those that have got one datagram and sent no reply.
	unconfirmed sessionList
	replies     chain  // to be sent at the end of the round
	lost        uint32 // see Service.overflow
	timer       loop.Timer
}

// socketBuffer is the kernel memory of a listener's socket in each direction: bursts
// wait there while its loop is busy, or the network card. 4 MiB is some 5000 small
// datagrams.
const socketBuffer = 4 << 20

func socketOptions(l l4.Listen, spec *Spec) sock.UDPOptions {
	return sock.UDPOptions{
		BindOptions: sock.BindOptions{V6Only: l.V6Only, Freebind: spec.Freebind},
		LocalAddr:   l.Addr.Addr().IsUnspecified() || sock.IsShared(l.Addr.Addr()),
		Buffer:      socketBuffer,
	}
}

func (s *Server) receivers(l *listener, fds []int) (list []*receiver) {
	n := 0 // workers that have a socket
	for i, fd := range fds {
		if list = append(list, newReceiver(s.workers[i], l, fd)); fd >= 0 {
			n++
		}
	}
	// Until now the first ones have got the others' clients, too. At worst a datagram
	// gets a session of its own.
	if n > 1 {
		// Should the kernel say no, clients stay where they are for as long as the
		// sockets do.
		sock.Steer(fds[0], n, s.steering)
	}
	return list
}

func newReceiver(w *worker, l *listener, fd int) *receiver {
	r := &receiver{worker: w, listener: l, fd: fd}
	if fd >= 0 {
		r.ipv4, r.lost = sock.LocalAddr(fd).Addr().Is4(), sock.Overflowed(fd)
	}
	if a := l.Listen.Addr.Addr(); !a.IsUnspecified() {
		r.at = sock.LocalOf(a)
	}
	r.unconfirmed.kind = special
	r.timer.Owner = r
	return r
}

// Descriptor is part of service.Socket.
func (r *receiver) Descriptor() int { return r.fd }

// Begin starts to take datagrams.
func (r *receiver) Begin() {
	w := r.worker
	if r.fd < 0 {
		return
	}
	if w.down {
		sock.Close(r.fd)
		r.fd = -1
		return
	}
	w.equip()
	w.receivers[r] = struct{}{}
	r.behind = true
	r.sessions = w.sessionsAt(r.listener.Listen.Addr.Port())
	if errno := w.loop.AddDatagrams(r.fd, r); errno != 0 {
		r.listener.Route().service.Notify(noticeReceive, errno.Error())
		r.Close()
	}
}

// Ready takes the datagrams that are waiting.
func (r *receiver) Ready(sock.Events) {
	if r.Turn() {
		r.worker.loop.Again(r.fd, sock.Readable)
	}
}

// Turn takes datagrams for one turn of the loop and reports whether there may be more.
func (r *receiver) Turn() (more bool) {
	for more := true; more; more = !r.worker.loop.Enough() {
		if r.fd < 0 || !r.receive() {
			return false
		}
	}
	return true
}

// receive takes a batch, or a piece of one, and reports whether there may be more. What
// is left of another receiver's batch comes first.
func (r *receiver) receive() (more bool) {
	w := r.worker
	if t := w.taker; t != nil {
		t.take()
		return true // an event may have told of more since the batch was received
	}
	n, errno := w.requests.Receive(r.fd, 0, w.requests.Len())
	switch {
	case errno == sock.EAGAIN:
		r.behind = false
		return false
	case errno != 0:
		// Nothing that concerns this socket: it has no peer. What is there is
		// still there.
		r.listener.Route().service.Notify(noticeReceive, errno.Error())
		return true
	}
	w.taker, w.taken, w.filled = r, 0, n
	r.take()
	r.behind = r.behind && (w.taker != nil || n == w.requests.Len())
	return w.taker != nil || n == w.requests.Len()
}

// pieceWork is how much of a batch is taken at once, in units of half a KiB or a quarter
// of a datagram: a full batch of small datagrams, but of trains, each of which can be 64
// datagrams with a header for each to be sent, only a few. A piece takes some 100 µs.
const pieceWork = 512

// take finds the sessions of datagrams in the tray and sends them on, until all or a
// piece is done.
func (r *receiver) take() {
	w, in := r.worker, r.worker.requests
	to, route := r, r.listener.Route()
	var from sock.Destination
	var s *session
	loops := false // what from sends: see goesRound
	for work := 0; w.taken < w.filled && work < pieceWork; w.taken++ {
		i := w.taken
		local, segment, shared := in.Details(i)
		size := len(in.Payload(i))
		in.segments[i] = segment
		work += 4*int(datagrams(size, segment)) + size>>9
		if shared && !r.takesShared(in.Peer(i).AddrPort().Addr()) {
			continue // another socket has it too
		}
		if !in.Whole(i) {
			route.service.Stats.drop(DropTooLarge, 1)
			continue
		}
		// Datagrams of one client often come one after the other.
		if client := r.client(in.Peer(i), local); client != from {
			from, s = client, nil
			if len(r.heirs) > 0 {
				to = r.heirOf(client)
				route = to.listener.Route()
			}
			known := to.sessions[client]
			loops = known == nil && w.goesRound(to.flow(client), route)
			if !loops && !route.Spec.Spray {
				s = to.sessionOf(known, client, route)
			}
		} else if s == nil && !loops && !route.Spec.Spray {
			s = to.newSession(client, route)
		}
		switch {
		case s != nil:
			s.takes(i)
		case loops:
			route.service.Stats.drop(DropLoop, datagrams(size, segment))
		case route.Spec.Spray:
			w.spray(to, route, from, i)
		default:
			n := datagrams(size, segment)
			route.service.Stats.drop(DropRefused, n)
			if w.refusal != l4.OK {
				route.service.Stats.Outcomes[w.refusal].Add(n - 1) // of a train; the first one is counted
			}
		}
	}
	if w.taken == w.filled {
		w.taker = nil
	}
	w.forward()
}

// takesShared reports whether the receiver is the one that takes what peers of this IP
// version send to a broadcast address or a group, which every socket gets that could:
// the first worker's, of the listener that is there for longest.
func (r *receiver) takesShared(peer netip.Addr) bool {
	if r.worker.index != 0 {
		return false
	}
	for _, o := range r.worker.server.At(r.listener.Listen.Addr.Port()) {
		if o != r.listener && o.Listen.Takes(peer) && outlasts(o, r.listener) {
			return false
		}
	}
	return true
}

// outlasts reports whether l takes what both get, on the first worker's loop. What has
// waited in a new socket since before it was served, the others have taken.
func outlasts(l, o *listener) bool {
	if behind := l.Sockets[0].behind; behind != o.Sockets[0].behind {
		return !behind
	}
	if retired := l.Retired(); retired != o.Retired() {
		return !retired
	}
	return l.Number > o.Number
}

// sessionOf returns the session of a client that has sent something: s, or a new one if
// it has none or its backend is out; nil if none can be made.
func (r *receiver) sessionOf(s *session, client sock.Destination, route *route) *session {
	switch {
	case s == nil:
		return r.newSession(client, route)
	case s.offered != route && !s.takeUp(route), !s.welcome():
		return s.replace(route)
	}
	return s
}

// client returns the name of who has sent a datagram to one of our addresses. It is
// the same for every socket that could have got it.
func (r *receiver) client(peer sock.Peer, local sock.Local) sock.Destination {
	if r.at != (sock.Local{}) {
		local = r.at
	}
	return sock.Destination{Peer: peer.Mapped(), From: local}
}

// destination returns where replies to a client go, as the socket wants to be told.
func (r *receiver) destination(client sock.Destination) sock.Destination {
	if r.ipv4 {
		client.Peer = client.Peer.Unmapped()
	}
	if r.at != (sock.Local{}) {
		client.From = sock.Local{}
	}
	return client
}

// flow describes what a client sends.
func (r *receiver) flow(client sock.Destination) l4.Flow {
	f := l4.Flow{Proto: l4.UDP, Client: client.Peer.AddrPort(), VIP: r.listener.Listen.Addr}
	if a := client.From.Addr(); a.IsValid() {
		f.VIP = netip.AddrPortFrom(a, f.VIP.Port())
	}
	return f
}

// Retire follows when the listener is retired: no sessions are made any more. A
// limited one ends those that are left after one idle limit.
func (r *receiver) Retire(limited bool) {
	if limited && r.fd >= 0 {
		r.worker.loop.Start(&r.timer, r.listener.Route().Spec.Idle)
	}
}

// Expired ends the grace of a listener that was removed.
func (r *receiver) Expired(*loop.Timer) {
	if !r.listener.Retired() {
		return // it is configured again
	}
	r.worker.endAll(l4.Drained, func(s *session) bool { return s.receiver == r })
}

// Close closes the socket and ends what sessions it still has.
func (r *receiver) Close() {
	w := r.worker
	if r.fd < 0 {
		return
	}
	if w.taker == r {
		w.taker = nil
	}
	defer w.tidy(r.listener.Listen.Addr.Port())
	w.endAll(l4.Drained, func(s *session) bool { return s.receiver == r })
	w.loop.StopTimer(&r.timer)
	r.flushCounts()
	w.loop.Detach(r.fd)
	sock.Close(r.fd)
	r.fd = -1
	delete(w.receivers, r)
}

func (r *receiver) flushCounts() { r.listener.Route().service.Stats.overflow(r.fd, &r.lost) }
