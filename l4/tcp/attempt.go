package tcp

import (
	"slices"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/sock"
)

// connect chooses backends until a handshake is under way with one of them, or
// none is left to try.
func (c *conn) connect() {
	pool := c.up.Pool
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
		c.patience = c.attempt + c.route.Spec.ConnectTotal
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
	case c.up.Pool.QueueSpec().Size > 0:
		c.finish(l4.QueueFull, l4.Proxy)
	default:
		c.route.service.Notify(noticeBusy, c.up.Pool.Name())
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
		source, transparent := c.up.source(c.flow, addr.AddrPort)
		fd, errno = sock.Connect(addr.AddrPort, source, transparent)
		if errno == 0 && sock.MeetsItself(fd, addr.AddrPort) {
			sock.Reset(fd)
			errno = sock.ECONNREFUSED // nothing listens there: its port was free to choose
		}
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
	return min(c.attempt+c.route.Spec.Connect, c.patience) - c.worker.loop.Now()
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
	e := c.connectEvidence()
	switch {
	case c.failure.Local():
	case e == l4.Doubtful:
		c.blame(b, e)
	default:
		c.lease.Report(false, 0)
	}
	c.abandon()
	b.Stats.ConnectFailures[c.failure].Add(1)
	if w.server.hooks.Connected != nil && (e == l4.Failed || c.failure.Local()) {
		w.server.hooks.Connected(b, c.failure)
	}
	spec := &c.route.Spec
	if int(c.retries) >= spec.Retries || w.loop.Now() >= c.patience || !c.mayRetry(e) {
		c.finish(c.connectOutcome(), l4.Backend)
		return false
	}
	return true
}

// mayRetry reports whether the pool's budget allows another attempt after a failure
// that says e. It is not charged when there is nobody left to try.
func (c *conn) mayRetry(e l4.Evidence) bool {
	pool := c.up.Pool
	return !pool.Others(c.wasTried) || pool.AllowRetry(e, c.flow.Client.Addr())
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
		c.tryAnother()
		return
	}
	if c.up.TLS != nil || c.asks() {
		c.prepare()
	} else {
		c.opened()
	}
}

// tryAnother gives up the leased backend for c.failure and goes on with another one,
// unless the connection has ended with it.
func (c *conn) tryAnother() {
	if c.attemptFailed() {
		c.connect()
	}
}

// opened begins to relay: the backend is there and, if it had to, has proved who it
// is.
func (c *conn) opened() {
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
	c.begun()
	c.pump(&c.client)
	if c.phase == relaying {
		c.pump(&c.backend)
	}
}

// begun puts what the stream to a plain backend begins with, header and first bytes,
// into one buffer: together they make one segment.
func (c *conn) begun() {
	if !c.front.ahead() {
		c.dropAhead()
	}
	if c.up.Proxy.Version == 0 || c.up.TLS != nil || c.asks() {
		return // there is no header, or it has gone out
	}
	room := c.worker.room()
	n := copy(room, c.appendPreface(room[:0]))
	if c.front.ahead() {
		m, fresh := c.takeAhead(room[n:])
		c.received(&c.client, m, 0)
		if fresh {
			c.keep(room[n : n+m])
		}
		n += m
	}
	c.hold(&c.client, room[:n])
}
