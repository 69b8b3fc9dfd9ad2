package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/sock"
)

// A replay is what a client has sent, kept while no backend has said a word: with
// it another one can be asked. Once it is longer than the pool allows it is given
// up, and the connection stays with the backend it has.
type replay struct {
	kept  []byte
	over  bool // given up
	again int  // how much of what is read ahead is a repetition
}

// keeps reports whether what is read of s has to be kept.
func (c *conn) keeps(s *side) bool { return s == &c.client && c.replays() }

// replays reports whether all that the client has sent could be sent again.
func (c *conn) replays() bool {
	return c.up.Replay > 0 && c.firstByte == l4.Unreached && (c.front == nil || !c.front.replay.over)
}

// keep puts aside what was read of the client.
func (c *conn) keep(b []byte) {
	if !c.replays() {
		return
	}
	r := &c.needFront().replay
	if len(r.kept)+len(b) > c.up.Replay {
		*r = replay{over: true}
		return
	}
	r.kept = append(r.kept, b...)
}

// dropReplay frees what was kept: the backend has answered.
func (c *conn) dropReplay() {
	if c.front != nil {
		c.front.replay.kept, c.front.replay.over = nil, true
	}
}

// diedSilent reports whether a backend that has ended without a word has failed. One
// that ends in order after its client has done so has taken all there was to say, in a
// protocol without answers; to send that to another one would be to say it twice.
func (c *conn) diedSilent(s *side, errno sock.Errno) bool {
	return errno != 0 || s.failed || s.lost || !c.client.ended
}

// replayElsewhere gives up a backend that has ended without a word, in order if errno
// is 0, and asks another one, with all that the client has sent. It reports false if
// there is none, or no retry left: then the connection goes the way of the backend.
func (c *conn) replayElsewhere(errno sock.Errno) bool {
	w, b, pool := c.worker, c.lease.Backend(), c.up.Pool
	// To close on a client that says nothing is no failure, and its own doing.
	failed, e := errno != 0 || c.client.moved > 0, l4.Doubtful
	if failed {
		e = c.evidence()
	}
	if c.phase != relaying || int(c.retries) >= c.route.Spec.Retries ||
		!pool.Others(func(o *balance.Backend) bool { return o == b || c.wasTried(o) }) ||
		!pool.AllowRetry(e, c.flow.Client.Addr()) {
		return false
	}
	if failed {
		c.blame(b, e)
	}
	c.flushCounts() // to the one that was sent them
	f := c.needFront()
	rest := f.rest()[f.replay.again:]
	c.dropHeld(&c.client)
	f.buf = append(append(make([]byte, 0, len(f.replay.kept)+len(rest)), f.replay.kept...), rest...)
	f.used, f.replay.again = 0, len(f.replay.kept)
	c.abandon()
	c.client.bulk, c.settled, c.gone, c.bounded = false, false, false, false
	c.connecting = l4.Unreached
	c.patience = w.loop.Now() + c.route.Spec.ConnectTotal
	c.phase = connecting
	c.route.service.Notify(noticeReplay, b.Name())
	c.connect()
	return true
}
