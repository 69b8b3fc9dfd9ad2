package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
)

// A side is one of the two sockets of a connection, together with what was read
// from it and the other side could not take yet.
type side struct {
	conn *conn
	fd   int32 // -1 when closed

	readable bool // not known to be empty
	writable bool // not known to be full
	hup      bool // its end is in the queue behind the data: a short read is not the last
	urgent   bool // has sent urgent data: a short read is not the last, splice stops at the mark
	failed   bool // has an error; the end of the stream, read before it, is a reset
	ended    bool // its FIN, or error, has been read
	finished bool // it has been sent our FIN
	lost     bool // it has reset the connection: a write said so
	bulk     bool // moves so much that bytes go through a pipe
	shared   bool // buf is the worker's: its bytes are in the outbox

	// Held for the other side: buf[from:to], or inPipe bytes of the pipe.
	from, to, inPipe int32
	buf              *buffer
	pipe             sock.Pipe

	moved, counted uint64 // bytes read from it; those already in the counters
}

const (
	// turn is how many bytes a direction moves before others get a turn.
	turn = 1 << 20
	// A direction that moves less than this in one go is not bulk any more.
	bulkAtLeast = bufferSize / 4
)

// other returns the opposite side.
func (c *conn) other(s *side) *side {
	if s == &c.client {
		return &c.backend
	}
	return &c.client
}

// Ready takes note of what the kernel says and does what has become possible.
func (s *side) Ready(ev sock.Events) {
	c := s.conn
	if w := c.worker; len(w.outbox) == outboxSize || w.used > bufferSize/2 {
		w.writeOut() // which may end this connection
		if s.fd < 0 {
			return // or was what noticed the reset of this side
		}
	}
	if ev&(sock.Readable|sock.ReadHup|sock.Hup|sock.Failed) != 0 {
		s.readable = true
	}
	if ev&(sock.ReadHup|sock.Hup|sock.Failed) != 0 {
		s.failed = s.failed || ev&sock.Failed != 0
		c.ending(s)
	}
	if ev&sock.Urgent != 0 {
		s.urgent = true
	}
	if ev&sock.Writable != 0 {
		s.writable = true
	}
	switch c.phase {
	case connecting, waiting, queued:
		if s == &c.backend {
			c.handshake(ev)
		} else if ev&(sock.Failed|sock.Hup) != 0 && sock.Unread(int(s.fd)) == 0 {
			// With something to deliver the connection goes on, to that and the
			// reset behind it.
			c.finish(l4.ClientReset, l4.Client)
		}
	case relaying:
		if ev&sock.Failed != 0 && s.ended {
			s.lost = true // reset after its FIN: no read will tell
		}
		if s.readable {
			c.pump(s)
		}
		if c.phase == relaying && ev&sock.Writable != 0 {
			c.pump(c.other(s))
		}
	case resetting:
		if ev&(sock.Failed|sock.Hup) != 0 {
			c.finish(c.outcome, c.by)
			return
		}
		c.resetWhenDelivered()
	}
}

// ending notes that the end of s is in its queue. From now on there has to be
// progress, also while the other side takes nothing and the end cannot be read.
func (c *conn) ending(s *side) {
	if s.hup {
		return
	}
	s.hup = true
	if c.phase == relaying {
		c.last = c.worker.loop.Now()
		if limit, _ := c.quietLimit(); limit > 0 {
			c.worker.loop.Start(&c.timer, limit)
		}
	}
}

// over reports whether s sends nothing more than what is queued.
func (s *side) over() bool { return s.hup || s.ended }

// pump moves bytes from s to the other side until one of them blocks, the
// stream ends or its turn is over. The connection may have ended afterwards.
func (c *conn) pump(s *side) {
	to := c.other(s)
	moved := 0
	for {
		if s.held() && !c.deliver(s, to) {
			return
		}
		if s.ended {
			c.directionDone(s, to)
			return
		}
		if !s.readable || !to.writable && !to.lost {
			break
		}
		if moved >= turn {
			c.worker.loop.Again(int(s.fd), sock.Readable)
			return
		}
		var n int
		if s.bulk {
			n = c.splice(s, moved)
		} else {
			n = c.copy(s, to)
		}
		if n < 0 || s.shared {
			return // the connection is ending, or the worker goes on with it
		}
		moved += n
	}
	c.parkPipe(s)
}

// copy reads once into the worker's buffer and writes it out, or puts it in the
// outbox if that was all there was. It returns the bytes read, or -1 when the
// connection is ending.
func (c *conn) copy(s, to *side) int {
	w := c.worker
	room := w.buffer[w.used:] // at least half of it
	n, errno := sock.Read(int(s.fd), room)
	if !c.received(s, n, errno) {
		return -1
	}
	if n == 0 {
		return 0
	}
	if n < len(room) {
		// The queue was empty at that moment, and what comes later is a new edge.
		// A unix socket returns short at message boundaries too.
		s.readable = s.hup || s.urgent || s == &c.backend && c.lease.Backend().Addr().Unix != ""
	} else {
		s.bulk = !s.urgent
	}
	if to.lost {
		return n // nobody is left to take it
	}
	if !s.readable && len(w.outbox) < outboxSize {
		s.buf, s.from, s.to, s.shared = w.buffer, int32(w.used), int32(w.used+n), true
		w.used += n
		w.outbox = append(w.outbox, s)
		return n
	}
	m, errno := sock.Write(int(to.fd), room[:n])
	if errno != 0 && errno != sock.EAGAIN {
		return c.writeFailed(s, to)
	}
	if m < n {
		to.writable = false
		c.hold(s, room[m:n])
	}
	return n
}

// hold keeps what the other side of s could not take, in a buffer of its own.
func (c *conn) hold(s *side, rest []byte) {
	s.buf, s.shared = c.worker.takeBuffer(), false
	s.from, s.to = 0, int32(copy(s.buf[:], rest))
}

// splice moves once from the socket into a pipe; deliver empties it.
func (c *conn) splice(s *side, moved int) int {
	w := c.worker
	if !s.pipe.Valid() {
		if s.pipe = w.takePipe(); !s.pipe.Valid() {
			s.bulk = false
			return 0
		}
	}
	n, errno := s.pipe.Fill(int(s.fd), turn)
	if errno == sock.EAGAIN && s.urgent {
		s.bulk = false
		return 0 // perhaps the mark only
	}
	if errno == sock.EAGAIN && moved < bulkAtLeast {
		s.bulk = false
	}
	if !c.received(s, n, errno) {
		return -1
	}
	s.inPipe = int32(n)
	return n
}

// received accounts for one read from s. It reports false when the read failed
// in a way that ends the connection.
func (c *conn) received(s *side, n int, errno sock.Errno) bool {
	switch {
	case n > 0:
		c.last = c.worker.loop.Now()
		s.moved += uint64(n)
		if c.firstByte == l4.Unreached && s == &c.backend {
			c.firstByte = c.last - c.attempt - c.connecting
			c.lease.Backend().Stats.FirstByteTime.Observe(c.firstByte)
			c.answered()
		}
	case errno == sock.EAGAIN:
		s.readable = false
	case errno != 0:
		c.reset(s)
		return false
	default:
		s.ended, s.readable = true, false
		s.lost = s.lost || s.failed
	}
	return true
}

// held reports whether bytes of s wait for the other side.
func (s *side) held() bool { return s.buf != nil || s.inPipe > 0 }

// deliver writes what is held of s. It reports whether all of it is gone.
func (c *conn) deliver(s, to *side) bool {
	for s.held() {
		if to.lost {
			c.dropHeld(s)
			return true
		}
		if !to.writable {
			if s.shared {
				c.hold(s, s.buf[s.from:s.to])
			}
			return false
		}
		var n int
		var errno sock.Errno
		if s.buf != nil {
			n, errno = sock.Write(int(to.fd), s.buf[s.from:s.to])
			s.from += int32(n)
			if s.from == s.to {
				c.freeBuffer(s)
			}
		} else {
			n, errno = s.pipe.Drain(int(to.fd), int(s.inPipe))
			s.inPipe -= int32(n)
		}
		if n > 0 {
			c.last = c.worker.loop.Now()
		}
		switch {
		case errno == sock.EAGAIN:
			to.writable = false
		case errno != 0:
			c.writeFailed(s, to)
			return false
		}
	}
	return true
}

// parkPipe gives back a pipe that has nothing in it: idle connections hold none.
func (c *conn) parkPipe(s *side) {
	if s.pipe.Valid() && s.inPipe == 0 {
		c.worker.givePipe(s.pipe)
		s.pipe = sock.Pipe{}
	}
}

// dropHeld forgets what is held of s.
func (c *conn) dropHeld(s *side) {
	c.freeBuffer(s)
	if s.inPipe > 0 {
		c.worker.closePipe(s.pipe)
		s.pipe, s.inPipe = sock.Pipe{}, 0
	}
	c.parkPipe(s)
}

func (c *conn) freeBuffer(s *side) {
	if s.buf != nil && !s.shared {
		c.worker.giveBuffer(s.buf)
	}
	s.buf, s.shared = nil, false
}

// directionDone passes on the FIN of s, whose bytes have all been delivered, or
// ends the connection if that was the second one.
func (c *conn) directionDone(s, to *side) {
	c.parkPipe(s)
	switch {
	case s.lost:
		c.reset(s)
	case to.ended && !to.held():
		c.finish(l4.OK, l4.Nobody)
	case !to.finished && !to.lost:
		to.finished = true
		sock.CloseWrite(int(to.fd))
		// From now on the other direction has to make progress.
		c.last = c.worker.loop.Now()
		if limit, _ := c.quietLimit(); limit > 0 {
			c.worker.loop.Start(&c.timer, limit)
		}
	}
}

// writeFailed notes that to has reset the connection. What it sent before that
// may still be in the queue and is read first; the end of it ends the
// connection. It returns -1.
func (c *conn) writeFailed(s, to *side) int {
	if c.phase == resetting {
		c.finish(c.outcome, c.by)
		return -1
	}
	to.lost, to.readable = true, true
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
	if !s.held() && unacked == 0 || w.loop.Now()-c.last >= c.route.spec.HalfClose {
		c.resetSide(to)
		c.finish(c.outcome, c.by)
		return
	}
	w.loop.Start(&c.timer, max(ackPoll, (w.loop.Now()-c.last)/8))
}
