package tcp

import (
	"slices"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A conn is one client connection and the one to its backend, owned by a loop
// from accept to the Session it leaves behind. It reads top to bottom as the
// life of a connection: begin, connect, (queue.go), connected, (relay.go), finish.
type conn struct {
	worker     *worker
	route      *route
	prev, next *conn
	timer      loop.Timer
	lease      balance.Lease
	tried      []*balance.Backend // have refused or timed out
	flow       l4.Flow

	// Times of the loop.
	start      time.Duration // accepted
	attempt    time.Duration // the connect under way began
	last       time.Duration // bytes moved
	waited     time.Duration // from start until a backend was chosen
	connecting time.Duration // how long the successful connect took
	firstByte  time.Duration // from then until the backend's first byte

	place    *place // in the pool's queue; only in phase queued
	strategy string // see l4.Session
	queuePos int32

	client, backend side

	phase   phase
	failure l4.ConnectReason // of the last attempt
	retries int16            // further backends tried
	settled bool             // has lived long enough to need keepalive
	outcome l4.Outcome       // while resetting: how it will have ended
	by      l4.Side
	unacked int32 // while resetting: what the side that is left had not acknowledged
}

type phase uint8

const (
	closed     phase = iota
	connecting       // a handshake with a backend is under way
	waiting          // for a place in the queue of a unix-socket backend
	queued           // for a backend with room, in the pool's own queue
	relaying
	resetting // one side is gone; the other is owed some bytes and then a reset
)

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
	w, svc := c.worker, c.route.service
	svc.Stats.Accepted.Add(1)
	c.waited, c.connecting, c.firstByte = l4.Unreached, l4.Unreached, l4.Unreached
	if !svc.admit(c.route.spec.MaxConnections) {
		w.server.notify(svc, noticeServiceFull, "")
		c.refuse()
		return
	}
	w.server.active.Add(1)
	c.phase = connecting
	if errno := w.loop.Add(int(c.client.fd), &c.client); errno != 0 {
		c.finish(l4.NoDescriptors, l4.Proxy)
		return
	}
	c.connect()
}

// refuse ends a connection that was not admitted and is not counted as open.
func (c *conn) refuse() {
	sock.Close(int(c.client.fd))
	c.worker.server.descriptors.give(2)
	c.report(l4.RefusedLimit, l4.Proxy)
	c.worker.release(c)
}

// connect chooses backends until a handshake is under way with one of them, or
// none is left to try.
func (c *conn) connect() {
	pool := c.route.pool
	for {
		var skip func(*balance.Backend) bool
		if len(c.tried) > 0 {
			skip = c.wasTried
		}
		lease, err := pool.Acquire(c.flow, skip)
		if err != nil {
			c.noneLeft(err)
			return
		}
		if c.try(lease) {
			return
		}
	}
}

// try connects to the leased backend. It reports false when that failed at once
// and another one is to be tried.
func (c *conn) try(lease balance.Lease) bool {
	c.lease, c.strategy = lease, lease.Strategy()
	if len(c.tried) > 0 {
		c.retries++
		c.route.service.Stats.Retries.Add(1)
	}
	c.attempt = c.worker.loop.Now()
	if c.waited == l4.Unreached {
		c.waited = c.attempt - c.start
	}
	return c.dial() || !c.attemptFailed()
}

func (c *conn) wasTried(b *balance.Backend) bool { return slices.Contains(c.tried, b) }

// noneLeft queues a connection for which Acquire had no backend, or ends it.
func (c *conn) noneLeft(err error) {
	if err == balance.ErrBusy && c.enqueue() {
		return
	}
	if c.failure != l4.ConnectOK { // some were tried: that is what went wrong
		c.finish(c.connectOutcome(), l4.Backend)
		return
	}
	switch {
	case err != balance.ErrBusy:
		c.finish(l4.NoBackend, l4.Proxy)
	case c.route.pool.QueueSpec().Size > 0:
		c.finish(l4.QueueFull, l4.Proxy)
	default:
		c.worker.server.notify(c.route.service, noticeBusy, c.route.pool.Name())
		c.finish(l4.RefusedLimit, l4.Proxy)
	}
}

func (c *conn) connectOutcome() l4.Outcome {
	switch c.failure {
	case l4.ConnectTimedOut:
		return l4.ConnectTimeout
	case l4.ConnectNoLocalPort:
		return l4.NoLocalPort
	case l4.ConnectNoDescriptors:
		return l4.NoDescriptors
	}
	return l4.ConnectFailed
}

// dial starts a handshake with the leased backend. It reports false, and why in
// c.failure, when that failed at once.
func (c *conn) dial() bool {
	w, addr := c.worker, c.lease.Backend().Addr()
	var fd int
	var errno sock.Errno
	if addr.Unix != "" {
		fd, errno = sock.ConnectUnix(addr.Unix)
	} else {
		fd, errno = sock.Connect(addr.AddrPort, c.route.source)
	}
	limit := c.attemptLimit()
	if errno == sock.EAGAIN { // only a unix socket's full queue answers so
		c.phase = waiting
		w.loop.Start(&c.timer, min(queueRetry, limit))
		return true
	}
	if errno == 0 {
		c.phase = connecting
		c.backend.fd = int32(fd)
		errno = w.loop.Add(fd, &c.backend)
	}
	if errno != 0 {
		c.failure = reasonOf(errno)
		return false
	}
	w.loop.Start(&c.timer, limit)
	return true
}

// attemptLimit is how long the present attempt may still take.
func (c *conn) attemptLimit() time.Duration {
	now, spec := c.worker.loop.Now(), &c.route.spec
	return min(c.attempt+spec.Connect, c.start+c.waited+spec.ConnectTotal) - now
}

func reasonOf(errno sock.Errno) l4.ConnectReason {
	switch errno {
	case sock.ECONNREFUSED, sock.ENOENT: // no such unix socket: nobody listens
		return l4.ConnectRefused
	case sock.ETIMEDOUT:
		return l4.ConnectTimedOut
	case sock.EADDRNOTAVAIL, sock.EADDRINUSE:
		return l4.ConnectNoLocalPort
	case sock.EMFILE, sock.ENFILE, sock.ENOBUFS, sock.ENOMEM, sock.ENOSPC: // ENOSPC: fs.epoll.max_user_watches
		return l4.ConnectNoDescriptors
	}
	return l4.ConnectUnreachable
}

// attemptFailed gives up the leased backend for c.failure and reports whether
// another one is to be tried. If not, the connection has ended.
func (c *conn) attemptFailed() (again bool) {
	w, b := c.worker, c.lease.Backend()
	if !c.failure.Local() {
		c.lease.Report(false, 0)
	}
	c.abandon()
	b.Stats.ConnectFailures[c.failure].Add(1)
	if w.server.hooks.Connected != nil {
		w.server.hooks.Connected(b, c.failure)
	}
	spec := &c.route.spec
	if int(c.retries) >= spec.Retries || w.loop.Now()-c.start-c.waited >= spec.ConnectTotal || !c.mayRetry() {
		c.finish(c.connectOutcome(), l4.Backend)
		return false
	}
	return true
}

// mayRetry reports whether the pool's budget allows another attempt. It is not
// charged when there is nobody left to try.
func (c *conn) mayRetry() bool {
	pool := c.route.pool
	return !pool.Others(c.wasTried) || pool.AllowRetry()
}

// abandon gives up the attempt under way; its backend is not chosen again.
func (c *conn) abandon() {
	c.closeSide(&c.backend)
	c.backend = side{conn: c, fd: -1}
	c.worker.loop.StopTimer(&c.timer)
	c.tried = append(c.tried, c.lease.Backend())
	c.lease.Release()
	c.lease = balance.Lease{}
}

// handshake looks how the connect under way has ended, if it has.
func (c *conn) handshake(ev sock.Events) {
	errno := sock.Errno(0)
	if ev&(sock.Failed|sock.Hup) != 0 {
		errno = sock.PendingError(int(c.backend.fd))
		if errno == sock.ECONNRESET || errno == sock.EPIPE {
			// A handshake that is turned down says ECONNREFUSED. This one went
			// through and was reset since, maybe after some bytes.
			c.backend.lost = true
			errno = 0
		}
	} else if ev&sock.Writable == 0 {
		return
	}
	if errno != 0 {
		c.failure = reasonOf(errno)
		if c.attemptFailed() {
			c.connect()
		}
		return
	}
	c.connected()
}

// connected begins to relay.
func (c *conn) connected() {
	w, b, now := c.worker, c.lease.Backend(), c.worker.loop.Now()
	c.phase = relaying
	c.failure = l4.ConnectOK
	c.connecting = now - c.attempt
	c.last = now
	b.Stats.Connections.Add(1)
	b.Stats.ConnectTime.Observe(c.connecting)
	if w.server.hooks.Connected != nil {
		w.server.hooks.Connected(b, l4.ConnectOK)
	}
	c.client.writable, c.backend.writable = true, true
	w.loop.Start(&c.timer, c.firstLook())
	c.pump(&c.client)
	if c.phase == relaying {
		c.pump(&c.backend)
	}
}

// Expired is the connection's one timer, which means something else in every
// phase. Activity never touches it: when it runs out early it is set anew.
func (c *conn) Expired(*loop.Timer) {
	w := c.worker
	switch c.phase {
	case connecting:
		c.failure = l4.ConnectTimedOut
		if c.attemptFailed() {
			c.connect()
		}
	case waiting:
		if c.attemptLimit() <= 0 {
			c.failure = l4.ConnectTimedOut
		} else if c.dial() {
			return
		}
		if c.attemptFailed() {
			c.connect()
		}
	case queued:
		c.queueExpired()
	case relaying:
		c.settle()
		limit, outcome := c.quietLimit()
		if limit == 0 {
			return
		}
		left := c.last + limit - w.loop.Now()
		if left > 0 {
			w.loop.Start(&c.timer, left)
			return
		}
		c.finish(outcome, c.silent())
	case resetting:
		c.resetWhenDelivered()
	}
}

// settle sets keepalive on a connection that has turned out not to be short.
// The client's socket has it from its listener.
func (c *conn) settle() {
	if c.settled {
		return
	}
	c.settled = true
	if k := c.route.spec.Keepalive; k.Probes > 0 && c.lease.Backend().Addr().Unix == "" {
		idle, interval, probes := k.seconds()
		sock.SetKeepalive(int(c.backend.fd), idle, interval, probes)
	}
}

// quietLimit is how long no byte may move, and how it ends if none does; 0 means
// for ever.
func (c *conn) quietLimit() (time.Duration, l4.Outcome) {
	spec := &c.route.spec
	if (c.client.over() || c.backend.over()) && (spec.Idle == 0 || spec.HalfClose < spec.Idle) {
		return spec.HalfClose, l4.HalfCloseTimeout
	}
	return spec.Idle, l4.Idle
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
