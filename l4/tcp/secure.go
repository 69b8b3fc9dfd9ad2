package tcp

import (
	"crypto/tls"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tlsio"
	"github.com/poise-lb/poise/l4/wire"
)

// secure starts the TLS handshake with the client, whose first bytes are there: one
// that says nothing costs no goroutine.
func (c *conn) secure() {
	w, f := c.worker, c.front
	if !c.beginShaking() {
		c.finish(l4.RefusedLimit, l4.Proxy)
		return
	}
	c.phase = securing
	t := tlsio.Server(int(c.client.fd), c.route.TLS, w.loop)
	c.client.tls = t
	t.Ready(c.client.hup || c.client.urgent)
	t.Handshake(f.rest(), c.secured)
	c.dropAhead()
	if c.client.readable {
		t.Fill(w.room())
	}
}

// secured goes on with a client whose handshake is over. It runs on the loop.
func (c *conn) secured(err error) {
	svc := c.route.service
	c.doneShaking()
	if err != nil {
		svc.Notify(noticeHandshake, err.Error())
		c.finish(l4.TLSFailed, l4.Client)
		return
	}
	state := c.client.tls.State()
	if state.Version >= tls.VersionTLS13 || state.DidResume {
		// The client's Finished was the last word, and nothing goes out now that could
		// acknowledge it. Until that is done a client with Nagle's algorithm on (RFC
		// 9293 section 3.7.4) keeps its request.
		sock.Acknowledge(int(c.client.fd))
	}
	svc.Stats.Handshakes.Add(1)
	if state.DidResume {
		svc.Stats.Resumed.Add(1)
	}
	c.front.tls = cert.Describe(state)
	c.front.serverName = c.front.tls.ServerName
	c.client.readable = true // with the last of the handshake the first of the stream may have come
	c.connect()
}

// Before its stream begins, a backend may have to be asked for TLS and to prove
// who it is: phase asking, then verifying.

// asks reports whether the backend is a PostgreSQL server that has to be asked for
// TLS: that of its pool, or that of a client which has asked us.
func (c *conn) asks() bool {
	if c.up.TLS != nil {
		return c.up.StartTLS
	}
	return c.client.tls == nil && c.front != nil && c.front.askedTLS
}

// prepare brings a connected backend to where its stream begins. The PROXY header
// goes out in the clear, before everything else.
func (c *conn) prepare() {
	w := c.worker
	preface := c.appendPreface(w.room()[:0])
	if c.asks() {
		c.phase = asking
		preface = wire.AppendSSLRequest(preface)
	}
	if n, errno := sock.Write(int(c.backend.fd), preface); len(preface) > 0 && n != len(preface) {
		// A socket nobody has written to takes more than any header.
		c.failure = l4.ConnectTLS
		if errno != 0 && errno != sock.ECONNRESET && errno != sock.EPIPE {
			c.failure = reasonOf(errno)
		}
		c.tryAnother()
		return
	}
	switch {
	case c.phase != asking:
		c.verify()
	case c.backend.readable:
		c.hearAnswer() // its end: it must not say anything before it was asked
	}
}

// hearAnswer reads the one byte with which PostgreSQL answers an SSLRequest. More
// than that one must not be read in the clear (CVE-2021-23222 again).
func (c *conn) hearAnswer() {
	var b [2]byte
	n, errno := sock.Read(int(c.backend.fd), b[:])
	switch {
	case errno == sock.EAGAIN:
	case n == 1 && b[0] == 'S' && c.up.TLS != nil:
		c.verify()
	case n == 1 && b[0] == 'S':
		c.backend.readable = true
		c.opened()
	default:
		c.failure = l4.ConnectTLS
		c.tryAnother()
	}
}

// proving goes on with a backend in phase asking or verifying.
func (c *conn) proving(ev sock.Events) {
	if c.phase == asking {
		c.hearAnswer()
		return
	}
	if ev&sock.Writable != 0 {
		c.backend.tls.Flush()
	}
	if c.backend.readable {
		c.backend.tls.Fill(c.worker.room())
	}
}

// verify starts the TLS handshake with the backend.
func (c *conn) verify() {
	addr := c.lease.Backend().Addr()
	c.phase = verifying
	t := tlsio.Client(int(c.backend.fd), c.up.TLS.Config(addr.Dial()), c.worker.loop)
	c.backend.tls = t
	t.Ready(addr.Unix != "" || c.backend.hup || c.backend.urgent) // of a unix socket a short read is not the last
	if c.backend.readable {
		t.Fill(c.worker.room())
	}
	t.Handshake(nil, func(err error) {
		if err != nil {
			c.route.service.Notify(noticeBackendTLS, c.lease.Backend().Name()+": "+err.Error())
			c.failure = l4.ConnectTLS
			c.tryAnother()
			return
		}
		c.backend.readable = true
		c.worker.makeRoom() // many may come here in one round
		c.opened()
	})
}
