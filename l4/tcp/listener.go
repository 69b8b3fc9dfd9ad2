package tcp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A listener is one address; every worker has a socket of its own for it, and
// the kernel spreads connections over them (SO_REUSEPORT). It stays open for as
// long as any service listens there, whatever else a reload changes.
type listener struct {
	listen  l4.Listen
	route   atomic.Pointer[route]
	sockets []*acceptor // one per worker
	// replaced says that another listener has clients' addresses in common with this
	// one, which goes: a wildcard in the place of one of its addresses, or the other
	// way round. Then clients must not be dropped, they would be a second late: its
	// sockets are withdrawn. It is set before it is retired.
	replaced bool
	gone     sync.WaitGroup
}

// An acceptor is a worker's socket of a listener, owned by its loop.
type acceptor struct {
	worker   *worker
	listener *listener
	fd       int // -1 when closed
	timer    loop.Timer
	paused   bool
	retiring bool
	due      bool // its grace is over: it ends when its queue is empty
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

// begin starts to take connections. It runs on the loop. All that can be wrong
// with the socket has been found out when it was bound; should the kernel still
// say no, the operator hears of it and the other workers' sockets serve.
func (a *acceptor) begin() {
	if a.worker.down {
		sock.Close(a.fd)
		a.fd = -1
		a.listener.gone.Done()
		return
	}
	a.worker.acceptors[a] = struct{}{}
	err := sock.Listen(a.fd)
	if errno := a.worker.loop.Add(a.fd, a); err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		a.worker.server.acceptErrors[acceptOther].Add(1)
		a.worker.server.notify(a.listener.route.Load().service, noticeAccept, err.Error())
		a.finish() // a socket that listens and never accepts would swallow its share of clients
	}
}

// Ready accepts what is waiting.
func (a *acceptor) Ready(sock.Events) {
	if a.paused || a.fd < 0 {
		return
	}
	if a.acceptSome() {
		a.worker.loop.Again(a.fd, sock.Readable)
	} else if a.due {
		a.finish()
	}
}

// acceptSome takes connections for a turn and reports whether there may be more.
func (a *acceptor) acceptSome() bool {
	w := a.worker
	for {
		if !w.server.descriptors.Take(2) {
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
		w.server.descriptors.Give(2)
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
}

func (a *acceptor) pause(reason int, detail string) {
	w := a.worker
	w.server.acceptErrors[reason].Add(1)
	w.server.notify(a.listener.route.Load().service, noticeAccept, detail)
	w.dropPipes()
	if a.retiring {
		return // its timer ends it
	}
	a.paused = true
	w.loop.Start(&a.timer, acceptPause)
}

// Expired ends a pause, or the grace of a retiring listener.
func (a *acceptor) Expired(*loop.Timer) {
	if a.retiring {
		a.due = true
		a.Ready(0)
		return
	}
	a.paused = false
	a.worker.server.descriptors.Refresh()
	a.Ready(0)
}

// retire closes the listener's sockets in a way that resets nobody: no new
// handshakes, time for those under way, everything accepted, then closed.
// gone is done when the last socket is closed.
func (l *listener) retire() {
	for _, a := range l.sockets {
		a.worker.loop.Post(a.retire) // after the loop has shut down there is none
	}
}

func (a *acceptor) retire() {
	if a.fd < 0 || a.retiring {
		return
	}
	a.retiring, a.paused = true, false
	if !a.listener.replaced {
		sock.RefuseNew(a.fd) // without it, at worst what comes in the last instant is reset
	}
	a.worker.loop.Start(&a.timer, retireGrace)
	a.Ready(0)
}

func (a *acceptor) finish() {
	if a.fd < 0 {
		return
	}
	a.worker.loop.StopTimer(&a.timer)
	a.worker.loop.Remove(a.fd)
	sock.Close(a.fd)
	a.fd = -1
	delete(a.worker.acceptors, a)
	a.listener.gone.Done()
}
