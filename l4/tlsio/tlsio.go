// Package tlsio runs crypto/tls on a socket that an event loop owns. The
// handshake, whose signatures take a millisecond and whose steps wait for the
// peer, has a goroutine; from then on reading and writing are calls that never
// block, with the results of those in package sock, so that a loop relays a TLS
// connection like any other.
//
//	t := tlsio.Server(fd, config, loop)
//	t.Handshake(received, func(err error) { ... })   // until then: Fill and Flush when ready
//	n, errno := t.Read(buffer)
//
// Only the loop touches the descriptor. The goroutine of a handshake reads what
// Fill has put aside and writes to what Flush sends, so a connection can be
// closed at any moment without asking it.
//
// That crypto/tls can be used like this rests on two of its properties: a Read that
// fails with a temporary net.Error may be repeated and loses nothing, half a record
// included; and a Write to a transport that takes everything never fails. What it
// writes is therefore buffered here, and no more is written before that is gone.
package tlsio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/poise-lb/poise/l4/sock"
)

// Conn is one TLS connection. But for what the handshake shares under mu, it is
// owned by the loop.
type Conn struct {
	// Set once.
	fd   int // the loop's, who closes it after Abort
	tls  *tls.Conn
	loop Loop

	drained bool // the socket is known to be empty
	empty   bool // and so is what crypto/tls has of it
	closing bool // close_notify has been written: nothing may follow it
	hup     bool // its end is in the queue: a short read is not the last
	ended   bool // its end has been read
	failed  sock.Errno
	err     error // of TLS, once it has failed

	mu      sync.Mutex // guards the following; contended during a handshake only
	aborted bool
	broken  bool      // a write has failed: the kernel tells of a reset once, and then of an end
	out     *[]byte   // ciphertext that the socket has not taken; nil = none
	sent    int       // of it
	shaking bool      // a handshake is under way
	in      []byte    // ciphertext that was read from the socket before it was asked for
	inEnded bool      // there will be no more
	full    bool      // in is: the socket has more
	wanted  sync.Cond // in has grown, or ended
	asked   bool      // the loop has been asked to flush
}

// Loop is the loop that owns the socket.
type Loop interface {
	// Post has f run on the loop; after that has stopped it does not, and says so.
	Post(f func()) bool
	// Enough reports that the turn under way has lasted long enough. It is asked on
	// the loop only.
	Enough() bool
}

const (
	// maxRecords is how many records a Read takes before it asks whether that is
	// enough. A record of one byte costs 0.3 µs, and up to 16 key updates may come with
	// each, of some µs: without a bound 64 KiB in records of one byte keep the loop for
	// 20 ms. Records of 16 KiB fill a buffer of 64 KiB before.
	maxRecords = 8
	// maxIn is how much is read ahead of a handshake. The goroutine asks for more.
	maxIn = 16 << 10
	// maxOut bounds what a peer can have us owe it without reading a byte: answers
	// to its key updates (RFC 8446 section 4.6.3) come on top of a full buffer.
	maxOut = 256 << 10
)

// Server is the accepting side of a TLS connection over the socket fd.
func Server(fd int, config *tls.Config, l Loop) *Conn {
	c := newConn(fd, l)
	c.tls = tls.Server(transport{c}, config)
	return c
}

// Client is the connecting side.
func Client(fd int, config *tls.Config, l Loop) *Conn {
	c := newConn(fd, l)
	c.tls = tls.Client(transport{c}, config)
	return c
}

func newConn(fd int, l Loop) *Conn {
	c := &Conn{fd: fd, loop: l}
	c.wanted.L = &c.mu
	return c
}

// Handshake starts the handshake; over is called on the loop when it has ended,
// unless the connection was aborted before. The received bytes have been read of
// the peer already; they are copied.
func (c *Conn) Handshake(received []byte, over func(error)) {
	c.in = append(c.in, received...)
	c.shaking = true
	go c.shake(over)
}

// shake runs on a goroutine of its own.
func (c *Conn) shake(over func(error)) {
	err := c.tls.Handshake()
	c.loop.Post(func() {
		c.mu.Lock()
		aborted := c.aborted
		c.shaking = false
		c.mu.Unlock()
		if aborted {
			return
		}
		if _, errno := c.Flush(); errno != 0 && errno != sock.EAGAIN && err == nil {
			err = errno
		}
		over(err)
	})
}

// Fill hands what the socket has to a handshake under way, through scratch.
func (c *Conn) Fill(scratch []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.inEnded {
		if c.full = len(c.in) >= maxIn; c.full {
			break
		}
		room := scratch[:min(len(scratch), maxIn)]
		n, errno := sock.Read(c.fd, room)
		if errno == sock.EAGAIN {
			break
		}
		if errno != 0 {
			c.failed = errno
		}
		c.inEnded = n == 0
		c.in = append(c.in, room[:n]...)
		if n < len(room) && !c.hup {
			break // that was all
		}
	}
	c.wanted.Signal()
}

// Abort ends a handshake under way, if there is one. The caller may close the
// socket then; no other method may be called.
func (c *Conn) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	c.freeOut()
	c.in, c.inEnded = nil, true
	c.wanted.Signal()
}

// Ready tells that the socket may have bytes, and with hup that its end is among
// them.
func (c *Conn) Ready(hup bool) {
	c.drained = false
	c.hup = c.hup || hup
}

// Read fills b with what the peer has sent. Like sock.Read it answers EAGAIN when
// there is nothing yet, and n 0 without an error at the end; a stream that is
// broken answers EPROTO, for which Err has the reason. It fills b in part only when
// there is no more, or when it has taken long: see Drained.
func (c *Conn) Read(b []byte) (n int, errno sock.Errno) {
	if c.owed() > maxOut {
		return 0, sock.EPROTO
	}
	defer c.Flush() // the answer to a key update, or an alert; what does not go out is Pending
	c.empty = false
	for records := 1; n < len(b); records++ {
		m, err := c.tls.Read(b[n:])
		n += m
		switch {
		case err == nil && records%maxRecords == 0 && c.loop.Enough():
			return n, 0
		case err == nil:
			continue
		case n > 0:
			c.empty = errors.Is(err, errAgain)
			return n, 0 // another error is asked for again
		case errors.Is(err, errAgain):
			return 0, sock.EAGAIN
		case c.failed != 0:
			return 0, c.failed
		case err == io.EOF:
			return 0, 0
		case err == io.ErrUnexpectedEOF:
			return 0, sock.ECONNRESET
		}
		c.err = err
		return 0, sock.EPROTO
	}
	return n, 0
}

// Emptied reports whether the last Read has taken all there was: the next one is worth
// its while after Ready.
func (c *Conn) Emptied() bool { return c.empty }

// Truncated reports, after the end has been read, that the peer has not said so in
// TLS: whoever is in between may have cut the stream short.
func (c *Conn) Truncated() bool { return c.ended }

// Write sends b. It takes nothing, and answers EAGAIN, while the socket has not
// taken what was written before; else it takes all of b, and EAGAIN then says that
// some of it is still Pending.
func (c *Conn) Write(b []byte) (n int, errno sock.Errno) {
	if _, errno = c.Flush(); errno != 0 {
		return 0, errno
	}
	if n, c.err = c.tls.Write(b); c.err != nil {
		return 0, sock.EPROTO
	}
	_, errno = c.Flush()
	return n, errno
}

// CloseNotify tells the peer that no more will be written. The alert may be
// Pending afterwards.
func (c *Conn) CloseNotify() sock.Errno {
	err := c.tls.CloseWrite()
	c.closing = true
	if err != nil {
		return sock.EPROTO
	}
	_, errno := c.Flush()
	return errno
}

// Pending reports whether the socket has not taken all that was written.
func (c *Conn) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out != nil
}

// Flush sends what is pending and returns how many bytes of it the socket has taken.
// EAGAIN: not all of them.
func (c *Conn) Flush() (n int, errno sock.Errno) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = false
	if c.out == nil || c.aborted {
		return 0, 0
	}
	n, errno = sock.Write(c.fd, (*c.out)[c.sent:])
	c.sent += n
	switch {
	case errno != 0:
		c.broken = c.broken || errno != sock.EAGAIN
		return n, errno
	case c.sent < len(*c.out):
		return n, sock.EAGAIN
	}
	c.freeOut()
	return n, 0
}

func (c *Conn) owed() int {
	if c.out == nil {
		return 0
	}
	return len(*c.out) - c.sent
}

func (c *Conn) freeOut() {
	if c.out == nil {
		return
	}
	*c.out = (*c.out)[:0]
	if cap(*c.out) <= maxOut {
		buffers.Put(c.out)
	}
	c.out, c.sent = nil, 0
}

// Err says why TLS has failed; nil if it has not.
func (c *Conn) Err() error { return c.err }

// State describes a connection whose handshake is over.
func (c *Conn) State() tls.ConnectionState { return c.tls.ConnectionState() }

// buffers are for ciphertext on its way out. They hold what a read of the relay,
// 64 KiB, becomes in records of any size.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, 72<<10)
	return &b
}}

// errAgain is what crypto/tls gets from a transport that has nothing to read.
var errAgain net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "the socket has nothing to read" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }
