package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/sock"
)

// answered tells of the backend's first byte, n of the loop's time after the
// connect began.
func (c *conn) answered() {
	c.lease.Report(true, c.connecting+c.firstByte)
	c.tell(c.lease.Backend(), l4.Answered)
}

// judge tells what an established connection that ends without a byte from the
// backend, or because that has vanished, says about it, if anything. It runs before the
// sockets are closed.
func (c *conn) judge(o l4.Outcome) {
	if c.connecting == l4.Unreached || c.firstByte != l4.Unreached && !c.gone {
		return
	}
	switch b := c.lease.Backend(); {
	case c.isFault(o):
		c.blame(b, c.evidence())
	case o == l4.OK && c.client.moved > 0 && c.client.ended:
		// It took all the client had to say, and the protocol has no answers.
		c.lease.Report(true, c.connecting)
		c.tell(b, l4.Answered)
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

// promptly bounds the time in which a backend that resets a silent client cannot have
// lost patience with it.
const promptly = time.Second

// evidence is what the failure of an established connection, before the backend's
// first byte, says about it. A server that throws nonsense away, hangs up on a client
// that says nothing or refuses one for its address is well. No client can make its
// kernel fall silent.
func (c *conn) evidence() l4.Evidence {
	if c.gone && !c.appears() {
		return l4.Failed
	}
	opened := c.attempt + c.connecting
	if c.client.moved > 0 || c.client.ended || c.introduced() || c.worker.loop.Now()-opened > promptly {
		return l4.Doubtful
	}
	return l4.Failed
}

// connectEvidence is what a failed attempt, for c.failure, says about the backend.
func (c *conn) connectEvidence() l4.Evidence {
	asked := c.asks() && c.up.TLS == nil // for TLS, because the client wants it
	late := c.failure == l4.ConnectTLS || c.phase == asking || c.phase == verifying
	if c.appears() || late && (asked || c.introduced()) {
		return l4.Doubtful
	}
	return l4.Failed
}

// introduced reports whether the backend knows who the client is.
func (c *conn) introduced() bool { return c.up.Proxy.Version != 0 || c.appears() }

// appears reports whether the client's address is that of the connection to the
// backend: who refuses that may refuse one client.
func (c *conn) appears() bool {
	addr := c.lease.Backend().Addr()
	_, transparent := c.up.source(c.flow, addr.AddrPort)
	return transparent && addr.Unix == ""
}

// blame reports a failure of the leased backend, to the pool and to the hooks.
func (c *conn) blame(b *balance.Backend, e l4.Evidence) {
	if e == l4.Doubtful {
		c.lease.Doubt()
	} else {
		c.lease.Report(false, 0)
	}
	c.tell(b, e)
}

func (c *conn) tell(b *balance.Backend, e l4.Evidence) {
	if f := c.worker.server.hooks.Fared; f != nil {
		f(b, e, c.flow.Client.Addr())
	}
}
