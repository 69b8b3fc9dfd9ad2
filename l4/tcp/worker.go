package tcp

import (
	"net/netip"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A worker is one loop and what it owns: its sockets of every listener, the
// connections they accepted, one buffer for all of them.
type worker struct {
	server *Server
	loop   *loop.Loop

	// Owned by the loop.
	acceptors map[*acceptor]struct{}
	conns     connList
	shaking   handshakes
	free      *conn // zeroed, linked by next
	buffer    *buffer
	used      int       // bytes of it that the outbox waits to write
	outbox    []*side   // whose small reads are written after the others' reads
	buffers   []*buffer // spare ones, for what a peer cannot take at once
	fronts    [][]byte  // the same of fronts
	pipes     []sock.Pipe
	blocked   int        // directions that wait for the other side to take bytes
	session   l4.Session // scratch for Hooks.Ended
	down      bool
}

// room is the part of the buffer that is free until the outbox has been written. It
// is at least half of it after makeRoom, and never nothing: what is put in the outbox
// takes no more than half of it.
func (w *worker) room() []byte { return w.buffer[w.used:] }

const bufferSize = 64 << 10

type buffer [bufferSize]byte

// outboxSize is how many small reads are gathered before they are written. Sends
// that follow each other closely find their receivers still awake, or wake them
// once for several; further apart, each one is a wake-up of its own.
const outboxSize = 64

const (
	// Spares are kept for the next burst, not for ever what the worst one took.
	maxSpareBuffers = 16
	maxSparePipes   = 32
)

func newWorker(s *Server, l *loop.Loop) *worker {
	w := &worker{
		server:    s,
		loop:      l,
		acceptors: map[*acceptor]struct{}{},
		buffer:    new(buffer),
		outbox:    make([]*side, 0, outboxSize),
	}
	l.AfterEvents(w.writeOut)
	return w
}

// accepted starts the life of a connection; two descriptors are reserved for it.
func (w *worker) accepted(l *listener, fd int, peer netip.AddrPort) {
	c := w.newConn()
	c.route = l.Route()
	c.start, c.last = w.loop.Now(), w.loop.Now()
	c.client.fd = int32(fd)
	c.flow = l4.Flow{Proto: l4.TCP, Client: peer, VIP: l.Listen.Addr}
	if l.Listen.Addr.Addr().IsUnspecified() {
		c.flow.VIP = sock.LocalAddr(fd)
	}
	c.begin()
}

// newConn returns a zero connection that is in the list of open ones. They are
// made a slab at a time: a connection is all there is per client, so its cost
// is the size of the struct.
func (w *worker) newConn() *conn {
	if w.free == nil {
		slab := make([]conn, 16)
		for i := range slab {
			slab[i].next, w.free = w.free, &slab[i]
		}
	}
	c := w.free
	w.free = c.next
	*c = conn{worker: w}
	c.client.conn, c.backend.conn = c, c
	c.client.fd, c.backend.fd = -1, -1
	c.timer.Owner = c
	w.conns.push(c)
	return c
}

// release takes back a connection that has ended.
func (w *worker) release(c *conn) {
	w.conns.remove(c)
	c.next, c.tried, c.route, c.up, c.front, c.place = w.free, nil, nil, nil, nil, nil
	w.free = c
}

// connList is an intrusive list of connections.
type connList struct{ first, last *conn } // the youngest, the oldest

func (l *connList) push(c *conn) {
	c.prev, c.next = nil, l.first
	if l.first != nil {
		l.first.prev = c
	} else {
		l.last = c
	}
	l.first = c
}

func (l *connList) remove(c *conn) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.prev, c.next = nil, nil
}

// closeAll ends the connections that match.
func (w *worker) closeAll(o l4.Outcome, match func(*conn) bool) {
	for c := w.conns.first; c != nil; {
		next := c.next
		if match(c) {
			c.finish(o, l4.Proxy)
		}
		c = next
	}
}

// Kill ends everything.
func (w *worker) Kill(o l4.Outcome) { w.closeAll(o, func(*conn) bool { return true }) }

// FlushCounts is part of service.Worker.
func (w *worker) FlushCounts() {
	for c := w.conns.first; c != nil; c = c.next {
		c.flushCounts()
	}
}

// Shut closes everything, right before the loop stops.
func (w *worker) Shut() {
	w.down = true
	for a := range w.acceptors {
		a.Close()
	}
	w.Kill(l4.Killed)
	w.dropPipes()
}

// makeRoom writes the outbox out when it is full, or leaves little of the buffer. It
// reports whether it has done so, which may have ended any connection.
func (w *worker) makeRoom() bool {
	if len(w.outbox) < outboxSize && w.used <= bufferSize/2 {
		return false
	}
	w.writeOut()
	return true
}

// writeOut writes what the outbox holds.
func (w *worker) writeOut() {
	for _, s := range w.outbox {
		// Ended, or written already, if not; the side may even be another's by now.
		if s.shared {
			s.conn.pump(s)
		}
	}
	w.outbox, w.used = w.outbox[:0], 0
}

// takeBuffer returns a buffer; giveBuffer takes it back.
func (w *worker) takeBuffer() *buffer {
	if n := len(w.buffers); n > 0 {
		b := w.buffers[n-1]
		w.buffers = w.buffers[:n-1]
		return b
	}
	return new(buffer)
}

func (w *worker) giveBuffer(b *buffer) {
	if len(w.buffers) < maxSpareBuffers {
		w.buffers = append(w.buffers, b)
	}
}

// takePipe returns an empty pipe, or an invalid one when descriptors are short:
// copying needs none.
func (w *worker) takePipe() sock.Pipe {
	if n := len(w.pipes); n > 0 {
		p := w.pipes[n-1]
		w.pipes = w.pipes[:n-1]
		return p
	}
	if !w.server.Descriptors.Take(2) {
		return sock.Pipe{}
	}
	p, errno := sock.NewPipe()
	if errno != 0 {
		w.server.Descriptors.Give(2)
	}
	return p
}

// givePipe takes back a pipe that is empty.
func (w *worker) givePipe(p sock.Pipe) {
	if len(w.pipes) < maxSparePipes {
		w.pipes = append(w.pipes, p)
		return
	}
	w.closePipe(p)
}

func (w *worker) closePipe(p sock.Pipe) {
	p.Close()
	w.server.Descriptors.Give(2)
}

// dropPipes closes the spare pipes, when descriptors are needed for clients.
func (w *worker) dropPipes() {
	for _, p := range w.pipes {
		w.closePipe(p)
	}
	w.pipes = w.pipes[:0]
}
