package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is what a Backend does with a connection.
type Mode int

// The modes of a Backend.
const (
	// Named answers each line "x\n" with its name on a line, then the line:
	// "name\nx\n". Lines are at most MaxSize bytes.
	Named Mode = iota
	// Echo returns every byte as it comes, and its end after the client's.
	Echo
	// Sink reads to the client's end, then answers with the number of bytes as a
	// decimal line.
	Sink
	// Source sends Behaviour.Length zero bytes and its end, then reads to the
	// client's end.
	Source
)

// Behaviour is how a Backend treats its connections. A change applies to the
// next connection, Delay and Serial to the next request.
type Behaviour struct {
	Mode     Mode
	Greeting string        // sent as soon as a connection is accepted
	Delay    time.Duration // Named: before each reply
	Serial   bool          // Named: one request at a time, the others wait
	Reset    bool          // accept, then reset: no byte is read or sent
	Length   int64         // Source: how many bytes
}

// BackendStats are a Backend's counters since it was made.
type BackendStats struct {
	Accepted uint64 // connections, a health check's included
	Requests uint64 // lines answered
	BytesIn  uint64
	BytesOut uint64
	Active   int64 // open connections
}

// A Backend is a server for demonstrations and tests. It can be stopped and
// revived on its port, which stays its own until Close.
type Backend struct {
	name      string
	port      *Reservation
	turn      chan struct{} // held by the request being served while Serial
	behaviour atomic.Pointer[Behaviour]
	closing   chan struct{}
	tasks     sync.WaitGroup

	lifecycle sync.Mutex    // serialises Stop, Kill, Revive and Close
	accepting chan struct{} // closed when the accept loop of ln has ended

	mu     sync.Mutex // guards the following
	ln     *net.TCPListener
	conns  map[*net.TCPConn]struct{}
	closed bool

	accepted, requests, bytesIn, bytesOut atomic.Uint64
}

// NewBackend starts a backend that listens on addr, an IP address and a port;
// "" means 127.0.0.1 and a free port. The caller must Close it.
func NewBackend(name, addr string, b Behaviour) (*Backend, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	port, err := Reserve(addr)
	if err != nil {
		return nil, err
	}
	s := &Backend{
		name:    name,
		port:    port,
		turn:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		conns:   make(map[*net.TCPConn]struct{}),
	}
	s.behaviour.Store(&b)
	if err := s.Revive(); err != nil {
		port.Close()
		return nil, err
	}
	return s, nil
}

// Name is what the backend calls itself in its replies.
func (b *Backend) Name() string { return b.name }

// Addr is the address it listens on, stopped or not.
func (b *Backend) Addr() netip.AddrPort { return b.port.Addr() }

// Behave changes the behaviour.
func (b *Backend) Behave(how Behaviour) { b.behaviour.Store(&how) }

// Behaviour returns the present behaviour.
func (b *Backend) Behaviour() Behaviour { return *b.behaviour.Load() }

// Stats returns the counters.
func (b *Backend) Stats() BackendStats {
	b.mu.Lock()
	active := len(b.conns)
	b.mu.Unlock()
	return BackendStats{
		Accepted: b.accepted.Load(),
		Requests: b.requests.Load(),
		BytesIn:  b.bytesIn.Load(),
		BytesOut: b.bytesOut.Load(),
		Active:   int64(active),
	}
}

// Stop refuses new connections and lets the open ones go on. A connection that
// was established is served, even one not accepted yet: a server that stops in
// an orderly way harms nobody whose connect succeeded.
func (b *Backend) Stop() error {
	b.lifecycle.Lock()
	defer b.lifecycle.Unlock()
	ln := b.takeListener()
	if ln == nil {
		return nil
	}
	_ = ln.SetDeadline(time.Unix(1, 0)) // ends the accept loop
	<-b.accepting
	return closeGently(ln, b.admit)
}

// Kill refuses new connections and resets the open ones, as a crash does.
func (b *Backend) Kill() {
	b.lifecycle.Lock()
	defer b.lifecycle.Unlock()
	if ln := b.takeListener(); ln != nil {
		_ = ln.Close()
		<-b.accepting
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// Revive listens again after Stop or Kill; on a running backend it does nothing.
func (b *Backend) Revive() error {
	b.lifecycle.Lock()
	defer b.lifecycle.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("backend %s: %w", b.name, net.ErrClosed)
	}
	if b.ln != nil {
		return nil
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // Go's default for listeners; such a socket takes no filter
	// Only the context could cancel it, and nothing here waits.
	ln, err := lc.Listen(context.Background(), "tcp", b.Addr().String())
	if err != nil {
		return fmt.Errorf("backend %s: %w", b.name, err)
	}
	b.ln = ln.(*net.TCPListener)
	b.accepting = make(chan struct{})
	go b.acceptLoop(b.ln, b.accepting)
	return nil
}

// Close ends everything the backend has open and waits for its goroutines.
func (b *Backend) Close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if first {
		close(b.closing)
	}
	b.Kill()
	b.tasks.Wait()
	b.port.Close()
}

func (b *Backend) takeListener() *net.TCPListener {
	b.mu.Lock()
	defer b.mu.Unlock()
	ln := b.ln
	b.ln = nil
	return ln
}

// acceptLoop ends when ln is closed or its deadline is in the past.
func (b *Backend) acceptLoop(ln *net.TCPListener, done chan<- struct{}) {
	defer close(done)
	for {
		c, err := ln.AcceptTCP()
		switch {
		case err == nil:
			b.admit(c)
		case errors.Is(err, net.ErrClosed), isTimeout(err):
			return
		default: // out of descriptors, or the client has gone: neither ends a server
			sleep(10*time.Millisecond, b.closing)
		}
	}
}

// admit serves c on its own goroutine.
func (b *Backend) admit(c *net.TCPConn) {
	b.accepted.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = c.Close()
		return
	}
	b.conns[c] = struct{}{}
	b.tasks.Go(func() {
		b.serve(c)
		_ = c.Close()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
	})
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
