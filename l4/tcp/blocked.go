package tcp

import "github.com/poise-lb/poise/l4/sock"

// A direction is blocked while bytes of it wait because the other side takes no more.
// How much the kernel lets wait besides, before and behind them, it decides by how fast
// the connection has been: megabytes on each side. That is what makes a fast transfer
// cheap, because reader and writer wake each other seldom; and it is what a client can
// have us hold by asking for much and reading nothing. So the kernel is left alone as
// long as few directions of a loop are blocked. When more are, connections that block,
// or begin to move much, are bounded.

// maxFree is how many directions of a loop may be blocked before connections are
// bounded. With the usual limits of the kernel, 4 MiB to be sent and 6 MiB received
// (tcp_wmem, tcp_rmem), they hold 160 MiB.
const maxFree = 16

// block notes that s waits for the other side to take what is held of it.
func (c *conn) block(s *side) {
	if !s.blocked {
		s.blocked = true
		c.worker.blocked++
	}
	c.mayBound()
}

// unblock notes that nothing of s is held any more.
func (c *conn) unblock(s *side) {
	if s.blocked {
		s.blocked = false
		c.worker.blocked--
	}
}

// mayBound bounds what the kernel holds of the connection, if that has become
// necessary. The window of the client is left to the kernel, because clients may be far
// away: a small window would slow down what they send.
func (c *conn) mayBound() {
	size := c.route.Spec.Buffer
	if c.bounded || size == 0 || c.worker.blocked <= maxFree {
		return
	}
	c.bounded = true
	sock.BoundUnsent(int(c.client.fd), size)
	if c.lease.Backend().Addr().Unix == "" {
		sock.BoundUnsent(int(c.backend.fd), size)
		sock.BoundUnread(int(c.backend.fd), size)
	}
}
