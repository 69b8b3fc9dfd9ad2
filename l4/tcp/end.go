package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
)

// finish closes both sides, accounts for the connection and reports it.
func (c *conn) finish(o l4.Outcome, by l4.Side) {
	if c.phase == closed {
		return
	}
	w := c.worker
	w.loop.StopTimer(&c.timer)
	if c.place != nil {
		c.leaveQueue()
		c.place.conn = nil
	}
	c.judge(o)
	c.dropHeld(&c.client)
	c.dropHeld(&c.backend)
	if !inOrder(o) {
		c.resetSide(&c.client)
		c.resetSide(&c.backend)
	}
	c.closeSide(&c.client)
	c.closeSide(&c.backend)
	w.server.Descriptors.Give(2)
	c.phase = closed
	if kind, ok := noticeOf(o); ok {
		c.route.service.Notify(kind, c.poolName())
	}
	c.doneShaking()
	c.dropAhead()
	c.flushCounts()
	c.report(o, by)
	c.lease.Release()
	c.dismiss()
	c.route.service.Give()
	w.release(c)
}

// inOrder reports whether a connection with outcome o ends with a FIN. All others are
// reset, those that were refused like those that were cut off: a FIN would tell of a
// complete stream, and leave the kernel with half a connection to wait for. A failed
// handshake was answered with an alert, which says as much and which a reset could destroy.
func inOrder(o l4.Outcome) bool { return o == l4.OK || o == l4.TLSFailed }

func (c *conn) closeSide(s *side) {
	if s.fd >= 0 {
		s.abort()
		c.worker.loop.Remove(int(s.fd))
		sock.Close(int(s.fd))
		s.fd = -1
	}
}

func (c *conn) resetSide(s *side) {
	if s.fd >= 0 {
		s.abort()
		c.worker.loop.Remove(int(s.fd))
		sock.Reset(int(s.fd))
		s.fd = -1
	}
}

// abort ends what TLS does with a socket that is about to be closed.
func (s *side) abort() {
	if s.tls != nil {
		s.tls.Abort()
		s.tls = nil
	}
}

// poolName is the pool the connection goes to; "" while that is not known.
func (c *conn) poolName() string {
	if c.up == nil {
		return ""
	}
	return c.up.Pool.Name()
}

// flushCounts adds the bytes moved since the last time to the counters.
func (c *conn) flushCounts() {
	in, out := c.client.moved-c.client.counted, c.backend.moved-c.backend.counted
	c.client.counted, c.backend.counted = c.client.moved, c.backend.moved
	if in|out == 0 {
		return
	}
	st := &c.route.service.Stats
	st.BytesIn.Add(in)
	st.BytesOut.Add(out)
	if b := c.lease.Backend(); b != nil {
		b.Stats.BytesIn.Add(in)
		b.Stats.BytesOut.Add(out)
	}
}

// report counts the outcome and hands out the Session. The lease is still held,
// so that the connection is among those it counts.
func (c *conn) report(o l4.Outcome, by l4.Side) {
	w, svc := c.worker, c.route.service
	svc.Stats.Outcomes[o].Add(1)
	total := w.loop.Now() - c.start
	if c.connecting != l4.Unreached {
		svc.Stats.Duration.Observe(total)
	}
	if w.server.hooks.Ended == nil {
		return
	}
	w.session = l4.Session{
		Service: svc.Name, Pool: c.poolName(),
		Flow:  c.flow,
		Start: time.Now().Add(-total),
		Wait:  c.waited, Connect: c.connecting, FirstByte: c.firstByte, Total: total,
		BytesIn: c.client.moved, BytesOut: c.backend.moved,
		Retries: int(c.retries), Outcome: o, By: by, Strategy: c.strategy, QueuePos: int(c.queuePos),
		ActConn: w.server.Active(), SvcConn: svc.Active(),
	}
	if c.up != nil {
		w.session.PoolConn = c.up.Pool.Active()
	}
	if f := c.front; f != nil {
		w.session.Peer, w.session.TLS, w.session.UniqueID = f.peer, f.tls, string(f.uniqueID)
	}
	if b := c.lease.Backend(); b != nil {
		w.session.Backend = b.Name()
		w.session.BackendConn = b.Active()
	}
	w.server.hooks.Ended(&w.session)
}
