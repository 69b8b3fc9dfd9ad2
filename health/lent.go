package health

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// maxLent bounds what a probe reads through a client library. What a database
// says at login and to our questions is a few kilobytes.
const maxLent = 1 << 20

// errTooMuch ends the reading of an answer that does not end.
var errTooMuch = errors.New("an answer of more than 1 MiB")

// lent is a probe's connection in the hands of a client library, which wants to
// own it: to set deadlines, to close it in some goroutine when something is wrong,
// to dial another one to cancel what it asked. But it is the probe's, which has
// one deadline and closes its only connection before it returns.
//
// It also keeps what libraries reduce to "bad connection".
type lent struct {
	net.Conn
	peeked []byte // read already; set before the library has the connection

	mu     sync.Mutex // guards the following
	given  bool       // to the library
	err    error      // the first that a read or write met
	budget int        // bytes that may still be read
	phase  tlsPhase
}

// tlsPhase is how far the TLS handshake of a connection is.
type tlsPhase uint8

const (
	tlsNotBegun tlsPhase = iota
	tlsBegun
	tlsDone
)

func lend(conn net.Conn) *lent { return &lent{Conn: conn, budget: maxLent} }

// dial is the library's dial function. It gives the connection once.
func (l *lent) dial(context.Context, string, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given {
		return nil, errors.New("one connection a probe")
	}
	l.given = true
	return l, nil
}

// SetDeadline does nothing, as do the next three.
func (l *lent) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (l *lent) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (l *lent) SetWriteDeadline(time.Time) error { return nil }

// Close does nothing.
func (l *lent) Close() error { return nil }

// peek reads n bytes that the library will be given nevertheless.
func (l *lent) peek(n int) ([]byte, error) {
	head := make([]byte, n)
	got, err := io.ReadFull(l, head)
	l.peeked = head[:got]
	return head, err
}

// Read reads within the budget.
func (l *lent) Read(p []byte) (int, error) {
	if len(l.peeked) > 0 {
		n := copy(p, l.peeked)
		l.peeked = l.peeked[n:]
		return n, nil
	}
	l.mu.Lock()
	budget := l.budget
	l.mu.Unlock()
	if budget == 0 {
		return 0, l.keep(errTooMuch)
	}
	n, err := l.Conn.Read(p[:min(len(p), budget)])
	l.mu.Lock()
	l.budget -= n
	l.mu.Unlock()
	return n, l.keep(err)
}

// Write notes when a TLS handshake begins: with a record of that kind (RFC 8446,
// section 5.1). No message of PostgreSQL or MySQL that comes before starts so: the
// one's has a length below 2^24 in four bytes, big-endian, the other's one of 32.
func (l *lent) Write(p []byte) (int, error) {
	const handshake, major = 22, 3
	l.mu.Lock()
	if l.phase == tlsNotBegun && len(p) > 2 && p[0] == handshake && p[1] == major {
		l.phase = tlsBegun
	}
	l.mu.Unlock()
	n, err := l.Conn.Write(p)
	return n, l.keep(err)
}

func (l *lent) keep(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	return err
}

// secure is what the library is to shake hands with over l; nil, as s is, for no
// TLS. When the handshake is done it is noted, with when the certificate expires.
func (l *lent) secure(ctx context.Context, s *shaker) (*tls.Config, error) {
	if s == nil {
		return nil, nil
	}
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		noteExpiry(ctx, state.PeerCertificates, state.VerifiedChains)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.phase = tlsDone
		return nil
	}
	return config, nil
}
