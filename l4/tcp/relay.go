package tcp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tlsio"
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
	notified bool // and before that, in TLS, our close_notify
	lost     bool // it has reset the connection: a write said so
	bulk     bool // moves so much that bytes go through a pipe
	shared   bool // buf is the worker's: its bytes are in the outbox
	blocked  bool // is counted in worker.blocked

	// Held for the other side: buf[from:to], or inPipe bytes of the pipe.
	from, to, inPipe int32
	buf              *buffer
	pipe             sock.Pipe

	tls *tlsio.Conn // nil = plain

	mute           time.Duration // since when it is known to leave what it is sent unanswered; 0 = it is not
	moved, counted uint64        // bytes read from it; those already in the counters
}

const (
	// spliceMost is what one call is asked to move into a pipe: more than it holds.
	spliceMost = 1 << 20
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

// ending notes that the end of s is in its queue. From now on there has to be
// progress, also while the other side takes nothing and the end cannot be read.
func (c *conn) ending(s *side) {
	if s.hup {
		return
	}
	s.hup = true
	if c.phase == relaying {
		c.expectProgress()
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
		if (s.blocked || s.held() || to.backlog()) && !c.deliver(s, to) {
			return
		}
		ahead := s == &c.client && c.front.ahead()
		if s.ended && !ahead {
			c.directionDone(s, to)
			return
		}
		if !s.readable && !ahead || !to.writable && !to.lost {
			break
		}
		if moved > 0 && c.worker.loop.Enough() {
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
	room := w.room()
	ahead := s == &c.client && c.front.ahead()
	n, errno, fresh := c.read(s, room)
	if !c.received(s, n, errno) {
		return -1
	}
	if n == 0 {
		return 0
	}
	if s == &c.client && fresh {
		c.keep(room[:n])
	}
	if n == len(room) {
		c.mayBound()
	}
	if ahead {
		// These are not the socket's bytes: how many there are says nothing about its
		// queue, which shows itself when it is empty.
	} else if s.tls != nil {
		s.readable = !s.tls.Emptied()
	} else if n < len(room) {
		// The queue was empty at that moment, and what comes later is a new edge.
		// A unix socket returns short at message boundaries too.
		s.readable = s.hup || s.urgent || s == &c.backend && c.lease.Backend().Addr().Unix != ""
	} else {
		s.bulk = !s.urgent && to.tls == nil && !c.keeps(s)
	}
	if to.lost {
		return n // nobody is left to take it
	}
	if !s.readable && len(w.outbox) < outboxSize && n <= len(room)/2 {
		s.buf, s.from, s.to, s.shared = w.buffer, int32(w.used), int32(w.used+n), true
		w.used += n
		w.outbox = append(w.outbox, s)
		return n
	}
	m, errno := to.write(room[:n])
	if errno != 0 && errno != sock.EAGAIN {
		return c.writeFailed(s, to)
	}
	if errno != 0 || m < n {
		to.writable = false
	}
	if m < n {
		c.hold(s, room[m:n])
	}
	return n
}

// read fills b with what s has sent. Not fresh is what the relay has read before.
func (c *conn) read(s *side, b []byte) (n int, errno sock.Errno, fresh bool) {
	switch {
	case s == &c.client && c.front.ahead():
		n, fresh = c.takeAhead(b)
		return n, 0, fresh
	case s.tls != nil:
		n, errno = s.tls.Read(b)
	default:
		n, errno = sock.Read(int(s.fd), b)
	}
	return n, errno, true
}

// write sends b to a side. With TLS it may take all of it and answer EAGAIN.
func (s *side) write(b []byte) (int, sock.Errno) {
	if s.tls != nil {
		return s.tls.Write(b)
	}
	return sock.Write(int(s.fd), b)
}

// backlog reports whether the socket has not taken all of what TLS has made of the
// bytes for this side.
func (s *side) backlog() bool { return s.tls != nil && !s.lost && s.tls.Pending() }

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
	limit := spliceMost
	if c.bounded {
		limit = min(limit, c.route.Spec.Buffer)
	}
	n, errno := s.pipe.Fill(int(s.fd), limit)
	if errno == sock.EAGAIN && s.urgent || n == 0 && errno == 0 {
		// Perhaps that is the mark of urgent data only, which splice does not pass, and
		// with a FIN behind it takes for the end. A read tells.
		s.bulk = false
		return 0
	}
	if errno == sock.EAGAIN && 0 < moved && moved < bulkAtLeast { // nothing at all means that the last turn was cut short
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
			c.dropReplay()
		}
	case errno == sock.EAGAIN:
		s.readable = false
	case s == &c.backend && c.replays() && c.diedSilent(s, errno) && c.replayElsewhere(errno):
		return false
	case errno != 0:
		c.gone = s == &c.backend && errno == sock.ETIMEDOUT // says keepalive
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
	for s.held() || to.backlog() {
		if to.lost {
			c.dropHeld(s)
			return true
		}
		if !to.writable {
			if s.shared {
				c.hold(s, s.buf[s.from:s.to])
			}
			c.block(s)
			return false
		}
		var n int
		var errno sock.Errno
		if to.backlog() {
			n, errno = to.tls.Flush()
		} else if s.buf != nil {
			n, errno = to.write(s.buf[s.from:s.to])
			s.from += int32(n)
			if s.from == s.to {
				c.freeBuffer(s)
			}
		} else {
			n, errno = s.pipe.Empty(int(to.fd), int(s.inPipe))
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
	c.unblock(s)
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
	c.unblock(s)
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
