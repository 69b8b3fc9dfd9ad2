package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/sock"
)

// answered tells of the backend's first byte, n of the loop's time after the
// connect began.
func (c *conn) answered() {
	c.lease.Report(true, c.connecting+c.firstByte)
	c.tell(c.lease.Backend(), true)
}

// judge tells what an established connection that ends without a byte from the
// backend says about it, if anything. It runs before the sockets are closed.
func (c *conn) judge(o l4.Outcome) {
	if c.connecting == l4.Unreached || c.firstByte != l4.Unreached {
		return
	}
	switch b := c.lease.Backend(); {
	case c.isFault(o):
		c.lease.Report(false, 0)
		c.tell(b, false)
	case o == l4.OK && c.client.moved > 0 && c.client.ended:
		// It took all the client had to say, and the protocol has no answers.
		c.lease.Report(true, c.connecting)
		c.tell(b, true)
	}
}

// isFault reports whether a silent backend is to blame for outcome o. It is if it
// reset the connection, if it let a client that had said everything wait in vain,
// and if its kernel does not even acknowledge bytes; but not for idling with a
// client that sends and expects nothing back, as syslog does.
func (c *conn) isFault(o l4.Outcome) bool {
	switch o {
	case l4.BackendReset:
		return true
	case l4.HalfCloseTimeout:
		return c.client.ended
	case l4.Idle:
		return c.client.held() || c.client.moved > 0 && c.backend.fd >= 0 && sock.Unacked(int(c.backend.fd)) > 0
	}
	return false
}

func (c *conn) tell(b *balance.Backend, ok bool) {
	if f := c.worker.server.hooks.Answered; f != nil {
		f(b, ok)
	}
}
