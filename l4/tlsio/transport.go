package tlsio

import (
	"io"
	"net"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// transport is the side of a Conn that crypto/tls sees. During the handshake it is
// called on the goroutine of that and may wait; afterwards on the loop, and may not.
type transport struct{ c *Conn }

// Read hands out what Fill has put aside, and later what is in the socket.
func (t transport) Read(b []byte) (int, error) {
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.shaking && len(c.in) == 0 && !c.inEnded {
		if c.full {
			c.full = false
			c.loop.Post(c.refill)
		}
		c.wanted.Wait()
	}
	if len(c.in) > 0 {
		n := copy(b, c.in)
		if c.in = c.in[n:]; len(c.in) == 0 {
			c.in = nil
		}
		return n, nil
	}
	switch {
	case c.aborted:
		return 0, net.ErrClosed
	case c.failed != 0:
		return 0, c.failed
	case c.shaking:
		return 0, io.EOF
	case c.drained:
		return 0, errAgain
	}
	return c.readSocket(b)
}

// readSocket reads once, on the loop.
func (c *Conn) readSocket(b []byte) (int, error) {
	n, errno := sock.Read(c.fd, b)
	switch {
	case errno == sock.EAGAIN:
		c.drained = true
		return 0, errAgain
	case errno != 0:
		c.failed = errno
		return 0, errno
	case n == 0 && c.broken:
		c.failed = sock.ECONNRESET
		return 0, c.failed
	case n == 0:
		c.ended = true
		return 0, io.EOF
	}
	// A short read has emptied the queue, unless the end is in it too.
	c.drained = n < len(b) && !c.hup
	return n, nil
}

// refill reads on for a handshake that has used up what was put aside.
func (c *Conn) refill() {
	if !c.aborted {
		c.Fill(make([]byte, maxIn))
	}
}

// Write takes all of b. During the handshake it has the loop send it.
func (t transport) Write(b []byte) (int, error) {
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.aborted:
		return 0, net.ErrClosed
	case c.closing:
		return len(b), nil // the answer to a key update that came too late
	}
	if c.out == nil {
		c.out = buffers.Get().(*[]byte)
	}
	*c.out = append(*c.out, b...)
	if c.shaking && !c.asked {
		c.asked = true
		c.loop.Post(func() { c.Flush() }) // an error shows when the handshake waits for an answer
	}
	return len(b), nil
}

// The rest of net.Conn. Time limits are the loop's, and so is the socket.

func (transport) Close() error                     { return nil }
func (transport) LocalAddr() net.Addr              { return nowhere{} }
func (transport) RemoteAddr() net.Addr             { return nowhere{} }
func (transport) SetDeadline(time.Time) error      { return nil }
func (transport) SetReadDeadline(time.Time) error  { return nil }
func (transport) SetWriteDeadline(time.Time) error { return nil }

// nowhere stands for addresses, which TLS does not depend on.
type nowhere struct{}

func (nowhere) Network() string { return "tcp" }
func (nowhere) String() string  { return "" }
