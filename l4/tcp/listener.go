package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
)

// What package service does for TCP.
type (
	listening = service.Server[route, ServiceStats, *acceptor]
	listener  = service.Listener[route, *acceptor]
	plan      = service.Plan[route, ServiceStats]
)

// An acceptor is a worker's socket of a listener, owned by its loop.
type acceptor struct {
	worker    *worker
	listener  *listener
	fd        int // -1 when closed
	timer     loop.Timer
	paused    bool
	keepalive Keepalive // of the connections it accepts
}

const (
	acceptPause = 100 * time.Millisecond // when descriptors or memory are out
	retireGrace = 100 * time.Millisecond // for handshakes under way on a closing listener
)

// Why accepting paused.
const (
	acceptNoDescriptors = iota
	acceptNoMemory
	acceptOther
	numAcceptErrors
)

var acceptErrorNames = [numAcceptErrors]string{"no_descriptors", "no_memory", "other"}

func (s *Server) acceptors(l *listener, fds []int) (list []*acceptor) {
	for i, fd := range fds {
		a := &acceptor{worker: s.workers[i], listener: l, fd: fd}
		a.timer.Owner = a
		list = append(list, a)
	}
	return list
}

// Descriptor is part of service.Socket.
func (a *acceptor) Descriptor() int { return a.fd }

// Begin starts to take connections.
func (a *acceptor) Begin() {
	if a.worker.down {
		sock.Close(a.fd)
		a.fd = -1
		return
	}
	a.worker.acceptors[a] = struct{}{}
	a.keepalive = a.listener.Route().Spec.Keepalive
	err := sock.Listen(a.fd)
	if errno := a.worker.loop.Add(a.fd, a); err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		a.worker.server.acceptErrors[acceptOther].Add(1)
		a.listener.Route().service.Notify(noticeAccept, err.Error())
		a.Close()
	}
}

// Ready accepts what is waiting.
func (a *acceptor) Ready(sock.Events) {
	if !a.paused && a.Turn() {
		a.worker.loop.Again(a.fd, sock.Readable)
	}
}

// Turn takes connections for a turn and reports whether there may be more.
func (a *acceptor) Turn() bool {
	w := a.worker
	for a.fd >= 0 {
		if !w.server.Descriptors.Take(2) {
			a.pause(acceptNoDescriptors, "out of file descriptors")
			return false
		}
		fd, peer, errno := sock.Accept(a.fd)
		if errno == 0 {
			w.accepted(a.listener, fd, peer)
			if w.loop.Enough() {
				return true
			}
			continue
		}
		w.server.Descriptors.Give(2)
		switch errno {
		case sock.EAGAIN:
			return false
		case sock.EMFILE, sock.ENFILE:
			a.pause(acceptNoDescriptors, errno.Error())
			return false
		case sock.ENOBUFS, sock.ENOMEM:
			a.pause(acceptNoMemory, errno.Error())
			return false
		case sock.ECONNABORTED:
			// The client is gone already; it never was a connection.
		default:
			a.pause(acceptOther, errno.Error())
			return false
		}
	}
	return false
}

func (a *acceptor) pause(reason int, detail string) {
	w := a.worker
	w.server.acceptErrors[reason].Add(1)
	a.listener.Route().service.Notify(noticeAccept, detail)
	w.dropPipes()
	a.paused = true
	w.loop.Start(&a.timer, acceptPause)
}

// Expired ends a pause.
func (a *acceptor) Expired(*loop.Timer) {
	a.paused = false
	a.worker.server.Descriptors.Refresh()
	a.Ready(0)
}

// Retire keeps new handshakes away, so that closing the socket resets no client: those
// under way have the grace of the listener.
func (a *acceptor) Retire(bool) {
	if a.fd >= 0 && !a.listener.Withdrawn() && !a.listener.Passed {
		sock.RefuseNew(a.fd) // without it, at worst what comes in the last instant is reset
	}
}

// Close is part of service.Socket.
func (a *acceptor) Close() {
	if a.fd < 0 {
		return
	}
	a.worker.loop.StopTimer(&a.timer)
	a.worker.loop.Detach(a.fd)
	sock.Close(a.fd)
	a.fd = -1
	delete(a.worker.acceptors, a)
}

// succeed has clients of listeners that go be taken by others that mean them too: a
// wildcard in the place of one of its addresses, or the other way round. They must not
// be dropped, or they would be a second late, so the old sockets are withdrawn.
func (s *Server) succeed(old, present []*listener) {
	s.Loops.Do(func(i int, _ *loop.Loop) {
		for _, l := range present {
			l.Sockets[i].follow()
		}
	})
	for _, l := range old {
		if len(l.Overlapping(present)) > 0 {
			s.Withdraw(l)
		}
	}
}

// follow makes the socket as the route wants it.
func (a *acceptor) follow() {
	if k := a.listener.Route().Spec.Keepalive; a.fd >= 0 && k != a.keepalive {
		a.keepalive = k
		listenOptions(a.listener.Listen, &a.listener.Route().Spec).SetInherited(a.fd)
	}
}

func listenOptions(l l4.Listen, spec *Spec) sock.ListenOptions {
	o := sock.ListenOptions{BindOptions: sock.BindOptions{V6Only: l.V6Only, Freebind: spec.Freebind}}
	o.KeepaliveIdle, o.KeepaliveInterval, o.KeepaliveProbes = spec.Keepalive.seconds()
	return o
}
