package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Limits that keep a stranger, or a script gone wild, from costing more than
// this. What is served is small and quick; only a reload may take its time.
// See also door and turns.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 15 * time.Second
	reloadTimeout = 2 * time.Minute
	idleTimeout   = time.Minute
	maxHeader     = 8 << 10

	// closeWithin is how long Close lets requests finish.
	closeWithin = time.Second
)

// A Server serves one listener: the control socket or the read-only address.
type Server struct {
	// Set once.
	http   *http.Server
	ln     net.Listener
	hosts  *hosts // nil of the control socket
	unlink func()
	served sync.WaitGroup

	closeOnce sync.Once
	closeErr  error
}

// Room is what the clients of a server may take up of the process.
type Room struct {
	Places func() int  // the most connections at once; the oldest idle one gives way
	Count  func(n int) // is told how many connections more, or fewer, are open
}

// ListenSocket starts the control API on a unix socket at path, mode 0660. It
// replaces a socket that a dead process left there and refuses to replace a live
// one. Failures of single connections are told to log.
//
//	GET  /v1/status   Status
//	POST /v1/reload   ReloadResult; 422 if it was refused
//	GET  /readyz      200 or 503 and why
//	GET  /livez       200 or 503 and why
//	GET  /v1/conns?pool=P&backend=B&limit=N           ConnList
//	GET  /v1/backends/{pool}/{backend}                BackendState
//	POST /v1/backends/{pool}/{backend}/state          StateRequest -> BackendState
//	POST /v1/backends/{pool}/{backend}/weight         WeightRequest -> BackendState
//
// The last four answer {"error": text} with 400 or 404 to what they refuse.
func ListenSocket(path string, d Daemon, room Room, log *slog.Logger) (*Server, error) {
	ln, err := listenSocket(path)
	if err != nil {
		return nil, err
	}
	return serve(ln, ln.unlink, controlHandler(d), room, reloadTimeout, log), nil
}

// ListenHTTP starts the read-only endpoints on a TCP address:
//
//	GET /            the status page
//	GET /v1/status   Status
//	GET /metrics     the handler given
//	GET /readyz      200 or 503 and why
//	GET /livez       200 or 503 and why
//
// Requests that call it by a name other than localhost get 421; see AnswerTo.
func ListenHTTP(addr string, d Daemon, metrics http.Handler, room Room, log *slog.Logger) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another process (ss -ltnp tells which); choose another address, or \"\" for none", addr)
	case err != nil:
		return nil, err
	}
	known := new(hosts)
	s := serve(ln, func() {}, publicHandler(d, metrics, known), room, writeTimeout, log)
	s.hosts = known
	return s, nil
}

// AnswerTo has a server of ListenHTTP answer requests that call it by one of these
// names, in lower case, in place of those it was told before.
func (s *Server) AnswerTo(names []string) { s.hosts.names.Store(&names) }

func serve(ln net.Listener, unlink func(), h http.Handler, room Room, write time.Duration, log *slog.Logger) *Server {
	s := &Server{
		ln:     ln,
		unlink: unlink,
		http: &http.Server{
			Handler:           whole(h),
			ConnContext:       visitorContext,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      write,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // strangers' mistakes
		},
	}
	door := &door{Listener: ln, places: room.Places, count: room.Count, visitors: map[*visitor]struct{}{}}
	s.served.Go(func() {
		if err := s.http.Serve(door); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin endpoint has stopped", "address", ln.Addr().String(), "error", err)
		}
	})
	return s
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close stops listening, removes the socket and gives requests a second to
// finish; so whoever serves such a request must not wait for it. Closing again
// does nothing.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.unlink()
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			s.closeErr = s.http.Close()
		}
		s.served.Wait()
	})
	return s.closeErr
}
