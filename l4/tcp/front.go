package tcp

import (
	"errors"
	"net/netip"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/wire"
)

// A front is what a connection begins with, where somebody has to look at that
// before a backend is chosen: a PROXY header, a request for TLS, a ClientHello.
// What it has read and not used up is the beginning of the stream, which the relay
// takes from it. Connections without such a beginning have no front.
type front struct {
	step  step
	buf   []byte // of the client, the used ones first; nil when all are used up
	used  int
	proxy wire.ProxyParser
	hello wire.HelloParser

	peer       netip.AddrPort // who connected, if another address was stated
	uniqueID   []byte         // from the PROXY header, or ours
	serverName string         // asked for in the ClientHello
	tls        *l4.TLS        // of a client whose TLS ends here
	askedTLS   bool           // an SSLRequest was answered, and the backend knows nothing of it

	// While a TLS handshake with the client is under way: its place in the worker's
	// list. See handshakes.
	shaking        bool
	conn           *conn
	older, younger *front

	replay replay
}

// step is what a connection in phase greeting waits for.
type step uint8

const (
	stepNone step = iota
	stepProxy
	stepStartTLS // an SSLRequest of PostgreSQL, or TLS at once
	stepHello    // the ClientHello, to choose by
	stepTLS      // its first byte, to start the handshake with
)

const (
	// A front starts with room for a usual ClientHello, key shares included.
	frontSize = 2 << 10
	// maxFront is the longest there can be: the two longest things one after the
	// other, of which the first is used up when the second is read.
	maxFront       = max(wire.MaxProxyHeader, wire.MaxHello)
	maxSpareFronts = 64
)

// rest is what has been read and not used up.
func (f *front) rest() []byte { return f.buf[f.used:] }

// ahead reports whether there is something that the relay has to take before it
// reads on.
func (f *front) ahead() bool { return f != nil && len(f.buf) > f.used }

// needFront returns the connection's front.
func (c *conn) needFront() *front {
	if c.front == nil {
		c.front = &front{}
	}
	return c.front
}

// greet waits for the client's first bytes.
func (c *conn) greet(s step) {
	f := c.needFront()
	f.step = s
	c.phase = greeting
	c.worker.loop.Start(&c.timer, c.start+c.route.Spec.FirstBytes-c.worker.loop.Now())
}

// nextStep is what has to be known once the PROXY header is.
func (r *route) nextStep() step {
	switch {
	case !r.listens():
		return stepNone
	case r.Spec.StartTLS:
		return stepStartTLS
	}
	return r.tlsStep()
}

func (r *route) tlsStep() step {
	if r.TLS != nil {
		return stepTLS
	}
	return stepHello
}

// hear reads what a client in phase greeting has sent. It is to be called while
// there may be more.
func (c *conn) hear() {
	w, f := c.worker, c.front
	for c.phase == greeting && c.client.readable {
		if f.buf == nil {
			f.buf = w.takeFront()
		}
		if len(f.buf) == cap(f.buf) {
			f.grow()
		}
		room := f.buf[len(f.buf):cap(f.buf)]
		n, errno := sock.Read(int(c.client.fd), room)
		switch {
		case errno == sock.EAGAIN:
			c.client.readable = false
			return
		case errno != 0:
			c.finish(l4.ClientReset, l4.Client)
			return
		case n == 0:
			c.leftEarly()
			return
		}
		f.buf = f.buf[:len(f.buf)+n]
		// What comes after a short read is a new event: a client that sends its bytes one
		// by one gets one read for each, and not one that finds nothing too.
		c.client.readable = n == len(room) || c.client.hup || c.client.urgent
		c.interpret()
		if c.phase == greeting && c.client.readable && w.loop.Enough() {
			w.loop.Again(int(c.client.fd), sock.Readable)
			return
		}
	}
}

// grow makes room, by leaving out what is used up, and else in a larger buffer. No
// parser asks for more than maxFront.
func (f *front) grow() {
	if f.used > 0 {
		f.buf = append(f.buf[:0], f.rest()...)
		f.used = 0
		return
	}
	f.buf = append(make([]byte, 0, min(2*cap(f.buf), maxFront)), f.buf...)
}

// leftEarly ends a connection whose client has ended its direction before it said
// what is needed. Not a word is what checks of other balancers do.
func (c *conn) leftEarly() {
	switch f := c.front; {
	case !f.ahead():
		c.finish(l4.OK, l4.Client)
	case f.step == stepProxy:
		c.finish(l4.BadProxyHeader, l4.Client)
	default:
		c.finish(l4.BadTLSHello, l4.Client)
	}
}

// interpret takes the steps for which enough has been read. It leaves phase
// greeting with the last one.
func (c *conn) interpret() {
	for c.phase == greeting {
		f, more := c.front, false
		switch f.step {
		case stepProxy:
			more = c.readProxy(f)
		case stepStartTLS:
			more = c.readStartTLS(f)
		case stepHello:
			more = c.readHello(f)
		case stepTLS:
			if more = !f.ahead(); !more {
				c.secure()
			}
		case stepNone:
			c.connect()
		}
		if more {
			return
		}
	}
}

// readProxy reads the PROXY header. It reports that more is needed.
func (c *conn) readProxy(f *front) (more bool) {
	n, err := f.proxy.Next(f.rest())
	if err != nil {
		c.route.service.Notify(noticeBadProxy, err.Error())
		c.finish(l4.BadProxyHeader, l4.Client)
		return false
	}
	if n == 0 {
		return true
	}
	f.used += n
	h := f.proxy.Header()
	if h.Datagram {
		// It speaks of a client of UDP, which cannot be this one: like a LOCAL header it
		// states no client for which a connection may be made.
		h = wire.ProxyHeader{Local: true}
	}
	if id, ok := h.TLV(wire.TLVUniqueID); ok && !h.Local {
		f.uniqueID = append(f.uniqueID, id...)
	}
	if !h.Local && h.Source.IsValid() {
		f.peer = c.flow.Client
		c.flow.Client, c.flow.VIP = h.Source, h.Destination
	}
	f.proxy = wire.ProxyParser{}
	f.step = c.route.nextStep()
	if o := c.admit(); o != l4.OK {
		c.worker.loop.Remove(int(c.client.fd))
		c.turnAway()
		c.finish(o, l4.Proxy)
	}
	return false
}

// readStartTLS answers PostgreSQL's requests for encryption (protocol 3.0, "SSL
// session encryption"): yes to TLS, no to GSSAPI, after which TLS may be asked for.
func (c *conn) readStartTLS(f *front) (more bool) {
	answer := "S"
	switch wire.PostgresStart(f.rest()) {
	case wire.PGUndecided:
		return true
	case wire.PGOther: // TLS at once, or none
		f.step = c.route.tlsStep()
		return false
	case wire.PGGSSENCRequest:
		answer = "N"
	case wire.PGSSLRequest:
		f.askedTLS = true
		f.step = c.route.tlsStep()
	}
	f.used += wire.PostgresStartLen
	if f.ahead() {
		// Nobody goes on before he has the answer: somebody has put it in, so that it
		// is taken for what came after the handshake (CVE-2021-23222).
		c.finish(l4.BadTLSHello, l4.Client)
		return false
	}
	if n, _ := sock.Write(int(c.client.fd), []byte(answer)); n != len(answer) {
		c.finish(l4.ClientReset, l4.Client)
		return false
	}
	return true
}

// readHello reads the ClientHello and chooses by it.
func (c *conn) readHello(f *front) (more bool) {
	done, err := f.hello.Next(f.rest())
	sni := c.route.SNI
	switch {
	case errors.Is(err, wire.ErrNotTLS) && !f.askedTLS:
		c.routeTo(sni.NotTLS, "what the client sent is not TLS")
	case err != nil:
		c.routeTo(nil, err.Error())
	case !done:
		return true
	default:
		f.serverName = f.hello.ServerName()
		c.routeTo(sni.find(f.serverName, f.hello.HasALPN), "no route for the server name")
		f.hello = wire.HelloParser{}
	}
	return false
}

// routeTo sends the connection to an upstream, or closes it because there is none.
func (c *conn) routeTo(to *Upstream, otherwise string) {
	if to == nil {
		c.route.service.Notify(noticeBadHello, otherwise)
		c.finish(l4.BadTLSHello, l4.Client)
		return
	}
	c.up = to
	c.connect()
}

// greetingExpired ends a connection whose beginning has not come in time. Half of
// one is never taken for anything; nothing at all may have a meaning.
func (c *conn) greetingExpired() {
	f := c.front
	if c.phase == greeting && f.step >= stepStartTLS && !f.ahead() && !f.askedTLS && c.route.SNI != nil && c.route.SNI.NoHello != nil {
		c.up = c.route.SNI.NoHello
		c.connect()
		return
	}
	c.finish(l4.FirstBytesTimeout, l4.Client)
}

// takeAhead moves into b what the front has read ahead. It reports whether the
// relay sees it for the first time.
func (c *conn) takeAhead(b []byte) (n int, fresh bool) {
	f := c.front
	rest := f.rest()
	if fresh = f.replay.again == 0; !fresh {
		rest = rest[:f.replay.again]
	}
	n = copy(b, rest)
	if !fresh {
		f.replay.again -= n
		c.client.moved -= uint64(n) // they are counted already, and will be once more
		c.lease.Backend().Stats.BytesIn.Add(uint64(n))
	}
	if f.used += n; !f.ahead() {
		c.dropAhead()
	}
	return n, fresh
}

// dropAhead gives back the buffer of a front that has served.
func (c *conn) dropAhead() {
	if f := c.front; f != nil && f.buf != nil {
		c.worker.giveFront(f.buf)
		f.buf, f.used = nil, 0
	}
}

func (w *worker) takeFront() []byte {
	if n := len(w.fronts); n > 0 {
		b := w.fronts[n-1]
		w.fronts = w.fronts[:n-1]
		return b
	}
	return make([]byte, 0, frontSize)
}

func (w *worker) giveFront(b []byte) {
	if cap(b) == frontSize && len(w.fronts) < maxSpareFronts {
		w.fronts = append(w.fronts, b[:0])
	}
}
