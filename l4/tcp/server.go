// Package tcp is the TCP data path: listeners, the life of one connection, the
// relay. One event loop per core owns the connections it accepted; nothing on
// the way of a byte takes a lock, allocates, or touches what another core writes.
//
//	s := tcp.NewServer(host, tcp.Hooks{Ended: record})
//	change, err := s.Prepare([]tcp.Route{{Spec: spec, To: &tcp.Upstream{Pool: pool}}})
//	change.Commit()
//
// A reload is Prepare and Commit again with the routes that shall run from then
// on: listeners and connections that stay are not touched.
package tcp

import (
	"net/netip"
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
)

// Hooks tell the rest of the system what happens on the loops. All are called
// on a loop: they must return at once and may be called from several at a time.
// Any may be nil.
type Hooks struct {
	// Connected reports how one connect attempt ended, unless the client may have
	// brought its failure about; Fared reports that.
	Connected func(*balance.Backend, l4.ConnectReason)
	// Fared reports, at most once for each established connection, what it says about
	// the backend, and of which client it is: Answered at the backend's first byte, or
	// when it took all the client sent in a protocol without answers; else how it
	// failed before its first byte, by a reset or by letting the connection time out.
	// A backend that vanishes after its first byte is reported once more. Together with the failures that Connected reports these are all the passive
	// signals there are: that a connect succeeds says little, a kernel accepts for a
	// program that hangs.
	Fared func(b *balance.Backend, e l4.Evidence, client netip.Addr)
	// Ended reports an accepted connection that is over, refused ones included.
	// The Session is the loop's: copy what is kept.
	Ended func(*l4.Session)
}

// Server owns the listeners and connections of all TCP services.
type Server struct {
	*listening
	hooks        Hooks // set once
	workers      []*worker
	acceptErrors [numAcceptErrors]atomic.Uint64
}

// NewServer makes a server on the loops of a host.
func NewServer(host service.Host, h Hooks) *Server {
	s := &Server{hooks: h, workers: make([]*worker, len(host.Loops))}
	s.listening = service.New[route, ServiceStats](host, service.Protocol[route, *acceptor]{
		Proto:   l4.TCP,
		Notices: notices[:],
		Worker: func(i int, l *loop.Loop) service.Worker {
			s.workers[i] = newWorker(s, l)
			return s.workers[i]
		},
		Sockets: s.acceptors,
		Succeed: s.succeed,
		Grace:   retireGrace,
		Shares:  true,
	})
	return s
}

// AcceptErrors counts, by reason, how often accepting had to pause or failed.
func (s *Server) AcceptErrors() map[string]uint64 {
	m := make(map[string]uint64, numAcceptErrors)
	for i := range s.acceptErrors {
		m[acceptErrorNames[i]] = s.acceptErrors[i].Load()
	}
	return m
}
