package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// What happens to a connection, an event of one of its sockets or the end of its timer,
// means something else in every phase of its life.

type phase uint8

const (
	closed     phase = iota
	greeting         // the client's first bytes are waited for
	securing         // a TLS handshake with the client is under way
	connecting       // a handshake with a backend is under way
	waiting          // for a place in the queue of a unix-socket backend
	asking           // for a PostgreSQL server's answer to an SSLRequest
	verifying        // a TLS handshake with the backend is under way
	queued           // for a backend with room, in the pool's own queue
	relaying
	resetting // one side is gone; the other is owed some bytes and then a reset
)

// Ready takes note of what the kernel says and does what has become possible.
func (s *side) Ready(ev sock.Events) {
	c := s.conn
	if backend := c.retries; c.worker.makeRoom() && (s.fd < 0 || s == &c.backend && c.retries != backend) {
		// That has ended this connection, or was what noticed the reset of this side;
		// or another backend has taken its place, whom the event is not about.
		return
	}
	if ev&(sock.Readable|sock.ReadHup|sock.Hup|sock.Failed) != 0 {
		s.readable = true
	}
	if ev&(sock.ReadHup|sock.Hup|sock.Failed) != 0 {
		s.failed = s.failed || ev&sock.Failed != 0
		c.ending(s)
	}
	if ev&sock.Urgent != 0 {
		s.urgent = true
	}
	if s.tls != nil {
		s.tls.Ready(s.hup || s.urgent)
	}
	if ev&sock.Writable != 0 {
		s.writable = true
	}
	switch c.phase {
	case greeting:
		c.hear()
	case securing:
		if ev&sock.Writable != 0 {
			s.tls.Flush()
		}
		if s.readable {
			s.tls.Fill(c.worker.room())
		}
	case asking, verifying:
		if s == &c.backend {
			c.proving(ev)
			return
		}
		fallthrough
	case connecting, waiting, queued:
		if s == &c.backend {
			c.handshake(ev)
		} else if ev&(sock.Failed|sock.Hup) != 0 && sock.Unread(int(s.fd)) == 0 {
			// With something to deliver the connection goes on, to that and the
			// reset behind it.
			c.finish(l4.ClientReset, l4.Client)
		}
	case relaying:
		if ev&sock.Failed != 0 && s.ended {
			s.lost = true // reset after its FIN: no read will tell
		}
		if s.readable {
			c.pump(s)
		}
		if to := c.other(s); c.phase == relaying && ev&sock.Writable != 0 && !c.worker.loop.Waits(int(to.fd)) {
			c.pump(to)
		}
	case resetting:
		if ev&(sock.Failed|sock.Hup) != 0 {
			c.finish(c.outcome, c.by)
			return
		}
		c.resetWhenDelivered()
	}
}

// Expired is the connection's one timer, which means something else in every
// phase. Activity never touches it: when it runs out early it is set anew.
func (c *conn) Expired(*loop.Timer) {
	switch c.phase {
	case greeting, securing:
		c.greetingExpired()
	case connecting, asking, verifying:
		c.failure = l4.ConnectTimedOut
		c.tryAnother()
	case waiting:
		if c.attemptLimit() <= 0 {
			c.failure = l4.ConnectTimedOut
		} else if c.dial() {
			return
		}
		c.tryAnother()
	case queued:
		c.queueExpired()
	case relaying:
		c.relayExpired()
	case resetting:
		c.resetWhenDelivered()
	}
}
