package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// A place is one in the queue of a pool. It is not part of the connection: when
// that leaves while a lease is on its way, the lease still has to find somebody
// who gives it back.
type place struct {
	balance.Waiter
	conn *conn // nil: it has left. Owned by the loop.
}

// enqueue joins the pool's queue, if it has one with a place left. While it is
// there nothing touches c.tried, which other goroutines read through Skip.
func (c *conn) enqueue() bool {
	w, pool := c.worker, c.up.Pool
	spec := pool.QueueSpec()
	if spec.Size == 0 {
		return false
	}
	p := &place{conn: c}
	p.Flow = c.flow
	if len(c.tried) > 0 {
		p.Skip = c.wasTried
	}
	p.Grant = func(l balance.Lease, err error) {
		if !w.loop.Post(func() { p.granted(l, err) }) {
			l.Release()
		}
	}
	c.phase, c.place = queued, p
	w.loop.Start(&c.timer, spec.Timeout)
	position, err := pool.Wait(&p.Waiter)
	if err != nil {
		w.loop.StopTimer(&c.timer)
		c.phase, c.place = connecting, nil
		return false
	}
	if c.queuePos == 0 {
		c.queuePos = int32(position)
	}
	return true
}

// granted goes on with a connection whose turn has come, or for whom there is
// nobody left to wait for. It runs on the loop.
func (p *place) granted(l balance.Lease, err error) {
	c := p.conn
	if c == nil {
		l.Release()
		return
	}
	c.worker.loop.StopTimer(&c.timer)
	c.phase, c.place = connecting, nil
	if err != nil {
		c.noneLeft(err)
		return
	}
	if !c.try(l) {
		c.connect()
	}
}

// leaveQueue gives up the place, if the connection has one. It reports false if
// its turn has come in this very moment.
func (c *conn) leaveQueue() bool {
	return c.place == nil || c.up.Pool.Cancel(&c.place.Waiter)
}

// queueExpired ends a connection that has waited for queue.timeout.
func (c *conn) queueExpired() {
	if c.leaveQueue() {
		c.finish(l4.QueueTimeout, l4.Proxy)
	} // else granted is about to run
}
