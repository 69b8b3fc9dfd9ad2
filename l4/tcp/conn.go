package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A conn is one client connection and the one to its backend, owned by a loop
// from accept to the Session it leaves behind. Its life is begin (here), what its first
// bytes decide (front.go, secure.go), connect (attempt.go) with a wait for room
// (queue.go), relay.go, ending.go, and finish (end.go). What happens to it comes in
// through phase.go.
type conn struct {
	worker     *worker
	route      *route
	up         *Upstream // where it goes; nil while only its ClientHello knows
	front      *front    // its first bytes; nil = they are not looked at
	prev, next *conn
	timer      loop.Timer
	lease      balance.Lease
	tried      []*balance.Backend // have refused or timed out
	flow       l4.Flow

	// Times of the loop.
	start      time.Duration // accepted
	attempt    time.Duration // the connect under way began
	patience   time.Duration // until when connects may go on
	last       time.Duration // bytes moved
	arrived    time.Duration // all that had been written was acknowledged; see look
	waited     time.Duration // from start until a backend was chosen
	connecting time.Duration // how long the successful connect took
	firstByte  time.Duration // from then until the backend's first byte

	place    *place // in the pool's queue; only in phase queued
	strategy string // see l4.Session
	queuePos int32

	client, backend side

	phase    phase
	failure  l4.ConnectReason // of the last attempt
	retries  int16            // further backends tried
	settled  bool             // has lived long enough to need keepalive
	bounded  bool             // the kernel holds no more of it than Spec.Buffer in each place
	admitted bool             // is counted by the service's policy
	gone     bool             // the backend does not answer any more
	outcome  l4.Outcome       // while resetting: how it will have ended
	by       l4.Side
	unacked  int32 // what had not been acknowledged when that was last looked at
}

const (
	// settleAfter is when keepalive is set up towards the backend, and the idle
	// limit looked at first. Short connections never pay for either.
	settleAfter = time.Second
	// queueRetry is how soon a full unix-socket listener is tried again.
	queueRetry = 5 * time.Millisecond
	// ackPoll is how often a dying connection looks whether its last bytes have
	// arrived.
	ackPoll = 10 * time.Millisecond
)

// begin admits an accepted connection and looks for a backend.
func (c *conn) begin() {
	w, r := c.worker, c.route
	svc := r.service
	svc.Stats.Accepted.Add(1)
	c.up = r.To
	c.waited, c.connecting, c.firstByte = l4.Unreached, l4.Unreached, l4.Unreached
	stated := r.trusts(c.flow.Client.Addr()) // who the client is
	if !stated {
		if o := c.admit(); o != l4.OK {
			c.turnAway()
			c.refuse(o)
			return
		}
	}
	if !svc.Take(r.Spec.MaxConnections) {
		svc.Notify(noticeServiceFull, "")
		c.refuse(l4.RefusedLimit)
		return
	}
	c.phase = connecting
	if errno := w.loop.Add(int(c.client.fd), &c.client); errno != 0 {
		c.finish(l4.NoDescriptors, l4.Proxy)
		return
	}
	switch {
	case stated:
		c.greet(stepProxy)
		c.front.proxy.Accept = r.Spec.Proxy.Accept
	case r.listens():
		c.greet(r.nextStep())
	default:
		c.connect()
	}
}

// admit asks the service's policy whether the client may come in.
func (c *conn) admit() l4.Outcome {
	o := c.route.Admit.Admit(c.flow.Client.Addr())
	c.admitted = o == l4.OK
	return o
}

// refuse ends a connection that was not let in and is not counted as open.
func (c *conn) refuse(o l4.Outcome) {
	if c.client.fd >= 0 {
		sock.Reset(int(c.client.fd))
	}
	c.worker.server.Descriptors.Give(2)
	c.report(o, l4.Proxy)
	c.dismiss()
	c.worker.release(c)
}

// turnAway closes the socket of a client that the policy does not let in.
func (c *conn) turnAway() {
	if c.route.Admit.Silent() {
		sock.Vanish(int(c.client.fd))
	} else {
		sock.Reset(int(c.client.fd))
	}
	c.client.fd = -1
}

// dismiss tells the policy that an admitted client has gone.
func (c *conn) dismiss() {
	if c.admitted {
		c.admitted = false
		c.route.Admit.Release(c.flow.Client.Addr())
	}
}

// relayExpired looks after a connection that is relayed: whether its peers are there,
// and whether bytes move.
func (c *conn) relayExpired() {
	c.settle()
	next, ended := c.look()
	if ended {
		return
	}
	if limit, outcome := c.quietLimit(); limit > 0 {
		left := c.last + limit - c.worker.loop.Now()
		if left > limit/2 {
			left -= limit / 2 // see unackedFell
		} else if c.unackedFell() {
			left = max(left, limit/2)
		}
		if left <= 0 {
			c.finish(outcome, c.silent())
			return
		}
		if next == 0 || left < next {
			next = left
		}
	}
	if next > 0 {
		c.worker.loop.Start(&c.timer, next)
	}
}

// settle sets keepalive on a connection that has turned out not to be short.
// The client's socket has it from its listener.
func (c *conn) settle() {
	if c.settled {
		return
	}
	c.settled = true
	if k := c.route.Spec.Keepalive; k.Probes > 0 && c.lease.Backend().Addr().Unix == "" {
		idle, interval, probes := k.seconds()
		sock.SetKeepalive(int(c.backend.fd), idle, interval, probes)
	}
}

// quietLimit is how long no byte may move, and how it ends if none does; 0 means
// for ever.
func (c *conn) quietLimit() (time.Duration, l4.Outcome) {
	spec := &c.route.Spec
	if (c.client.over() || c.backend.over()) && (spec.Idle == 0 || spec.HalfClose < spec.Idle) {
		return spec.HalfClose, l4.HalfCloseTimeout
	}
	return spec.Idle, l4.Idle
}

// unackedFell reports whether the kernels owe the peers less than when this was last asked.
// They hold megabytes, and tell of room only when much of that has gone: a slow reader
// makes progress without any byte of ours having moved. It has to be asked once before
// the limit is over, or there is nothing to compare with.
func (c *conn) unackedFell() bool {
	before := c.unacked
	c.unacked = int32(sock.Unacked(int(c.client.fd)) + sock.Unacked(int(c.backend.fd)))
	return 0 < c.unacked && c.unacked < before
}

// expectProgress starts the limit for a connection one side of which is over.
func (c *conn) expectProgress() {
	c.last = c.worker.loop.Now()
	if limit, _ := c.quietLimit(); limit > 0 {
		next := limit / 2 // see unackedFell
		if every := c.route.Spec.Keepalive.lookEvery(); every > 0 {
			next = min(next, max(every, settleAfter))
		}
		c.worker.loop.Start(&c.timer, next)
	}
}

// silent names the side that a quiet connection waits for.
func (c *conn) silent() l4.Side {
	switch {
	case c.client.over() && !c.backend.over():
		return l4.Backend
	case c.backend.over() && !c.client.over():
		return l4.Client
	}
	return l4.Proxy
}

func (c *conn) firstLook() time.Duration {
	if limit, _ := c.quietLimit(); limit > 0 {
		return min(limit, settleAfter)
	}
	return settleAfter
}
