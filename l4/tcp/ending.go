package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
)

// directionDone passes on the FIN of s, whose bytes have all been delivered, or
// ends the connection if that was the second one.
func (c *conn) directionDone(s, to *side) {
	c.parkPipe(s)
	if to.tls != nil && !to.notified && !to.lost && !s.lost && !c.truncated(s) {
		to.notified = true
		switch errno := to.tls.CloseNotify(); errno {
		case 0:
		case sock.EAGAIN:
			to.writable = false
			return // to be called again when it has gone out
		default: // a reset, which a read will not tell of any more
			c.writeFailed(s, to)
			return
		}
	}
	switch {
	case s.lost:
		c.reset(s)
	case to.ended && !to.held() && !s.backlog():
		c.finish(l4.OK, l4.Nobody)
	case !to.finished && !to.lost:
		to.finished = true
		sock.CloseWrite(int(to.fd))
		// From now on the other direction has to make progress.
		c.expectProgress()
	}
}

// truncated reports whether s has ended without saying so in TLS. Between two TLS
// connections that is passed on as it came; whether the stream was complete is for
// the receiver to tell. Plain TCP has no word for it, and sloppy clients are many.
func (c *conn) truncated(s *side) bool { return s.tls != nil && s.tls.Truncated() }

// writeFailed notes that to has reset the connection. What it sent before that
// may still be in the queue and is read first; the end of it ends the
// connection. It returns -1.
func (c *conn) writeFailed(s, to *side) int {
	if c.phase == resetting {
		c.finish(c.outcome, c.by)
		return -1
	}
	to.lost, to.readable = true, true
	if to.tls != nil {
		to.tls.Ready(true)
	}
	c.ending(to)
	c.dropHeld(s)
	c.pump(to)
	return -1
}

// reset starts the end of a connection one side of which has sent a reset: the
// bytes that came before it are delivered, then the other side is reset too, so
// that it cannot take a broken stream for a complete one.
func (c *conn) reset(s *side) {
	c.outcome, c.by = l4.ClientReset, l4.Client
	if s == &c.backend {
		c.outcome, c.by = l4.BackendReset, l4.Backend
	}
	to := c.other(s)
	c.phase = resetting
	c.closeSide(s)
	c.dropHeld(to)
	s.ended = true
	if to.lost {
		c.finish(c.outcome, c.by)
		return
	}
	c.last = c.worker.loop.Now()
	c.resetWhenDelivered()
}

// resetWhenDelivered resets the side that is left as soon as it has everything
// it is owed: a reset discards what the kernel has not delivered. It keeps
// looking until then, within the limit for a side that makes no progress.
func (c *conn) resetWhenDelivered() {
	w := c.worker
	to := &c.client
	if to.fd < 0 {
		to = &c.backend
	}
	s := c.other(to)
	if !c.deliver(s, to) && c.phase == closed {
		return
	}
	unacked := sock.Unacked(int(to.fd))
	if int32(unacked) != c.unacked {
		c.unacked, c.last = int32(unacked), w.loop.Now()
	}
	if !s.held() && !to.backlog() && unacked == 0 || w.loop.Now()-c.last >= c.route.Spec.HalfClose {
		c.resetSide(to)
		c.finish(c.outcome, c.by)
		return
	}
	w.loop.Start(&c.timer, max(ackPoll, (w.loop.Now()-c.last)/8))
}
