package service

import (
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A Listener is one address. Every worker has a socket of its own for it, and the
// kernel spreads clients over them (SO_REUSEPORT). They are opened and closed together,
// and stay open for as long as any service listens there, whatever else a reload
// changes.
type Listener[R any, S Socket] struct {
	// Set before it is served.
	Listen  l4.Listen
	Sockets []S    // one per worker, in their order
	Number  uint64 // later ones have higher numbers
	// Passed says that the sockets are another process's too, and that the next one of
	// ours may have them: what nobody has taken stays in them, and nothing that keeps
	// clients away may be set.
	Passed bool
	server *state

	route   atomic.Pointer[R]
	retired atomic.Bool
	users   atomic.Int64 // of a retired one: it is open for as long as it has any

	served    bool          // on its loops; guarded by the server's changing
	withdrawn bool          // likewise
	gone      chan struct{} // closed when its sockets are

	// Guarded by the server's mu.
	claimed bool // by a change that is being prepared
	closing bool
}

// A Socket is a worker's socket of a listener. All methods but Descriptor are called on
// the worker's loop.
type Socket interface {
	// Descriptor returns the file descriptor; -1 when it is closed, and if the worker
	// has none.
	Descriptor() int
	// Begin starts to take what comes. All that can be wrong with the socket has been
	// found out when it was bound. Should the kernel still say no, Begin tells the
	// operator and closes it: a socket that takes nothing would swallow its share of
	// clients.
	Begin()
	// Retire makes the socket attract no more clients: it takes what is under way
	// already. With limited, what keeps a listener open has to end in time.
	Retire(limited bool)
	// Turn takes what is waiting for a turn of the loop, and reports whether there may
	// be more.
	Turn() (more bool)
	// Close closes the socket, if it is open, and ends what cannot be without it. What
	// has not been taken of its queue is lost.
	Close()
}

// Route returns what the listener does with what comes, in the latest configuration.
func (l *Listener[R, S]) Route() *R { return l.route.Load() }

// Retired reports whether the listener is configured no longer, and goes when it is
// used no more.
func (l *Listener[R, S]) Retired() bool { return l.retired.Load() }

// Withdrawn reports whether the kernel gives the listener nothing any more. It is for
// Socket.Retire and what comes after it.
func (l *Listener[R, S]) Withdrawn() bool { return l.withdrawn }

// Use keeps the listener open until Leave, even if it is retired.
func (l *Listener[R, S]) Use() { l.users.Add(1) }

// Leave takes back a Use.
func (l *Listener[R, S]) Leave() {
	if l.users.Add(-1) == 0 && l.retired.Load() {
		l.server.look()
	}
}

// Overlapping returns those of list that a client of l can mean, too.
func (l *Listener[R, S]) Overlapping(list []*Listener[R, S]) (some []*Listener[R, S]) {
	for _, o := range list {
		if o != l && l.Listen.Overlaps(o.Listen) {
			some = append(some, o)
		}
	}
	return some
}

// Withdraw takes listeners out of the kernel's choice, all sockets of one in a row: as
// long as one is left the kernel chooses between all of them, and a socket that is
// withdrawn drops what it gets. One that cannot be withdrawn stays as it is. It is for
// Protocol.Succeed.
func (s *Server[R, T, S]) Withdraw(listeners ...*Listener[R, S]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range listeners {
		if s.closed || l.withdrawn || l.Passed {
			continue
		}
		l.withdrawn = true
		for _, k := range l.Sockets {
			if fd := k.Descriptor(); fd >= 0 && sock.Withdraw(fd) != 0 {
				l.withdrawn = false
			}
		}
	}
}

// maxTurns is more than it takes to empty the queue of a socket that gets no more.
const maxTurns = 100_000

// close closes the sockets of listeners that are used no more, and takes what is in
// their queues before.
func (s *Server[R, T, S]) close(listeners ...*Listener[R, S]) {
	if len(listeners) == 0 {
		return
	}
	s.Withdraw(listeners...) // without it, what comes in the last instant is lost
	for range maxTurns {
		var more atomic.Bool
		s.Loops.Do(func(i int, _ *loop.Loop) {
			for _, l := range listeners {
				if !l.Passed && l.Sockets[i].Turn() {
					more.Store(true)
				}
			}
		})
		if !more.Load() {
			break
		}
	}
	s.Loops.Do(func(i int, _ *loop.Loop) {
		for _, l := range listeners {
			if !l.Passed {
				l.Sockets[i].Turn() // what has come meanwhile
			}
			l.Sockets[i].Close()
		}
	})
}
