// Package tcp is the TCP data path: listeners, the life of one connection, the
// relay. One event loop per core owns the connections it accepted; nothing on
// the way of a byte takes a lock, allocates, or touches what another core writes.
//
//	s := tcp.NewServer(loops, descriptors, log, tcp.Hooks{Ended: record})
//	change, err := s.Prepare([]tcp.Route{{Spec: spec, To: &tcp.Upstream{Pool: pool}}})
//	change.Commit()
//
// A reload is Prepare and Commit again with the routes that shall run from then
// on: listeners and connections that stay are not touched.
package tcp

import (
	"cmp"
	"log/slog"
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
	// Set once.
	hooks       Hooks
	loops       loop.Group
	descriptors *sock.Descriptors
	workers     []*worker
	notices     *notice.Writer

	active       atomic.Int64
	acceptErrors [numAcceptErrors]atomic.Uint64

	changing sync.Mutex // held from Prepare to Commit or Abort

	mu        sync.Mutex // guards the following
	listeners map[l4.Listen]*listener
	services  map[string]*Service
	closed    bool
}

// NewServer makes a server of the given loops, which must be running and stay the
// caller's: they may have other work too, and are to be stopped after Close. The
// descriptors are what the whole data path may use.
func NewServer(loops loop.Group, descriptors *sock.Descriptors, log *slog.Logger, h Hooks) *Server {
	s := &Server{
		hooks:       h,
		loops:       loops,
		descriptors: descriptors,
		workers:     make([]*worker, len(loops)),
		notices:     notice.NewWriter(log),
		listeners:   map[l4.Listen]*listener{},
		services:    map[string]*Service{},
	}
	loops.Do(func(i int, l *loop.Loop) { s.workers[i] = newWorker(s, l) })
	return s
}

// Close ends what the server does on its loops; connections that are still open
// are killed. Nothing else may be called afterwards but the readers of counters.
func (s *Server) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	s.loops.Do(func(i int, _ *loop.Loop) { s.workers[i].shut() })
	s.notices.Close()
}

// StopAccepting closes every listener once its accept queue is empty. Open
// connections go on. It returns when no listener is left.
func (s *Server) StopAccepting() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	var retired []*listener
	for key, l := range s.listeners {
		delete(s.listeners, key)
		retired = append(retired, l)
	}
	for _, svc := range s.services {
		svc.leaving.Store(true)
	}
	s.mu.Unlock()
	for _, l := range retired {
		l.retire()
	}
	for _, l := range retired {
		l.gone.Wait()
	}
}

// Kill closes all open connections with outcome o. It does not wait.
func (s *Server) Kill(o l4.Outcome) {
	s.each(func(w *worker) { w.closeAll(o, func(*conn) bool { return true }) })
}

// CloseBackend closes the connections to b with outcome o, evenly over the time
// spread (0 = at once), so that their clients do not come back in one burst; those
// that are still being made go to another backend at once, and those that come
// later are left alone. It does not wait.
func (s *Server) CloseBackend(b *balance.Backend, o l4.Outcome, spread time.Duration) {
	called := time.Now()
	s.each(func(w *worker) { w.closeBackend(b, o, spread, called) })
}

// Flush adds what open connections have moved so far to the byte counters,
// which otherwise learn of it when a connection ends. It gives up on a loop that
// does not answer within a second.
func (s *Server) Flush() {
	s.loops.Within(time.Second, func(i int) { s.workers[i].flushCounts() })
}

func (s *Server) each(f func(*worker)) { s.loops.Each(func(i int) { f(s.workers[i]) }) }

// Active returns the number of open client connections.
func (s *Server) Active() int64 { return s.active.Load() }

// Services returns the running services and those that were removed and still
// have open connections, by name.
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

// AcceptErrors counts, by reason, how often accepting had to pause or failed.
func (s *Server) AcceptErrors() map[string]uint64 {
	m := make(map[string]uint64, numAcceptErrors)
	for i := range s.acceptErrors {
		m[acceptErrorNames[i]] = s.acceptErrors[i].Load()
	}
	return m
}
