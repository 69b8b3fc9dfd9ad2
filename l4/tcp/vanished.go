package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// A peer that vanishes is noticed by keepalive on a quiet connection only. With bytes
// on the way the kernel sends those again, for a quarter of an hour, and TCP_USER_TIMEOUT
// would end that, but also the connection of a peer that acknowledges and does not read.
// What tells the two apart is whether anything still comes back, which the connection's
// timer looks at now and then.

// unanswered is how long a peer may leave what it is sent without any answer; 0 = for
// as long as the kernel tries.
func (k Keepalive) unanswered() time.Duration {
	if k.Unanswered > 0 || k.Probes == 0 {
		return k.Unanswered
	}
	return k.Idle + time.Duration(k.Probes)*k.Interval
}

// lookEvery is how often that is looked at: late by a quarter at most.
func (k Keepalive) lookEvery() time.Duration { return k.unanswered() / 4 }

// look ends the connection if a side has vanished, and reports that. Else next is when
// to look again, 0 for never. A connection on which no byte has moved since everything
// was acknowledged costs no system call, one that is busy two every lookEvery.
func (c *conn) look() (next time.Duration, ended bool) {
	limit := c.route.Spec.Keepalive.unanswered()
	if limit == 0 {
		return 0, false
	}
	next = c.route.Spec.Keepalive.lookEvery()
	if c.last < c.arrived {
		return next, false
	}
	now, pending := c.worker.loop.Now(), false
	for _, s := range [...]*side{&c.client, &c.backend} {
		d := sock.Delivering(int(s.fd))
		pending = pending || d.Pending
		switch {
		case d.Retransmits == 0 && d.Probes == 0:
			s.mute = 0
			continue
		case s.mute == 0 || now-s.mute > d.Heard:
			s.mute = now // or there was an answer since
		case now-s.mute >= limit:
			c.vanished(s)
			return 0, true
		}
		next = min(next, s.mute+limit-now)
	}
	if !pending {
		c.arrived = now
	}
	return next, false
}

// vanished ends a connection whose side s does not answer any more, like one that was
// reset by it. The socket is not closed in order: the kernel would go on trying.
func (c *conn) vanished(s *side) {
	c.resetSide(s)
	if s == &c.backend {
		c.gone = true
		if c.replays() && c.replayElsewhere(sock.ETIMEDOUT) {
			return
		}
	}
	c.reset(s)
}
