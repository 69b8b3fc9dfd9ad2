package udp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// A worker is one loop and what it owns: its sockets of every listener, the sessions
// of the clients behind them, one tray of datagrams for each direction.
type worker struct {
	server *Server
	loop   *loop.Loop
	index  int // of the loop, and of the worker's sockets in every listener

	// Owned by the loop.
	receivers map[*receiver]struct{}
	clients   map[uint16]map[sock.Destination]*session // open sessions, by port of ours
	sessions  sessionList
	leaving   sessionList // of these, as they began to
	free      *session    // linked by links[every].next

	requests *tray      // nil until there is a receiver; see equip
	taker    *receiver  // whose batch is in it and not all taken yet; nil if there is none
	taken    int        // slots of it
	filled   int        // slots of the batch
	touched  []*session // that have got datagrams of the tray
	mailer   *mailer

	replies   *tray
	used      int        // slots of it that wait to be sent
	owners    []*session // of these slots
	answering []*receiver
	done      []*session // that may have had all their replies

	keepers   sessionList // that have kept requests, as they began to
	spare     *request
	made      int        // requests there is room for
	scheduled []*session // whose requests are to go to another backend
	piece     loop.Timer // there are more of them than were taken in a round
	scratch   []byte

	sprayers map[sprayKey]*sprayer
	sprayed  []*sprayer // that have got datagrams of the tray
	headers  []byte     // of these datagrams

	addresses *addresses

	refusal l4.Outcome // why there is no session for the present datagram; OK: its listener goes
	session l4.Session // scratch for Hooks.Ended
	down    bool
}

// batch is how many datagrams, or trains of them, are received with one call, and
// how many replies are gathered before they are sent. What one system call costs is
// small beside 64 datagrams; more would only make the first one wait.
const batch = 64

func newWorker(s *Server, i int, l *loop.Loop) *worker {
	w := &worker{
		server:    s,
		loop:      l,
		index:     i,
		receivers: map[*receiver]struct{}{},
		clients:   map[uint16]map[sock.Destination]*session{},
		owners:    make([]*session, batch),
		mailer:    newMailer(batch),
		sprayers:  map[sprayKey]*sprayer{},
	}
	w.leaving.kind, w.keepers.kind = special, keeping
	w.piece.Owner = w
	l.AfterEvents(w.afterEvents)
	return w
}

// equip makes the trays when the first receiver needs them. They are several MiB, and
// though nobody touches them without UDP, the collector would let as much garbage
// pile up before it runs.
func (w *worker) equip() {
	if w.requests == nil {
		w.requests, w.replies = newTray(batch, true), newTray(batch, false)
		w.addresses = new(addresses)
	}
}

// sessionsAt returns the sessions of clients of a port.
func (w *worker) sessionsAt(port uint16) map[sock.Destination]*session {
	if w.clients[port] == nil {
		w.clients[port] = map[sock.Destination]*session{}
	}
	return w.clients[port]
}

// tidy forgets the sessions at a port if no receiver is left there: a map never gets
// smaller.
func (w *worker) tidy(port uint16) {
	for r := range w.receivers {
		if r.listener.Listen.Addr.Port() == port {
			return
		}
	}
	delete(w.clients, port)
}

// forward sends the tray of requests on.
func (w *worker) forward() {
	for _, s := range w.touched {
		s.forward()
	}
	w.touched = w.touched[:0]
	for _, s := range w.sprayed {
		s.forward()
	}
	w.sprayed, w.headers = w.sprayed[:0], w.headers[:0]
}

// afterEvents sends the replies of a round, then ends the sessions that have had
// their last one: until here others rely on them. It has the others' requests repeated
// now that nothing of them is in a tray.
func (w *worker) afterEvents() {
	w.answer()
	for _, s := range w.done {
		s.finishIfDone()
	}
	w.done = w.done[:0]
	w.repeat()
}

// answer sends the tray of replies.
func (w *worker) answer() {
	if w.used == 0 {
		return
	}
	for _, r := range w.answering {
		for i := r.replies.head(); i >= 0; i = w.replies.after(i) {
			s := w.owners[i]
			w.mailer.post(r.fd, &s.out, &s.to, nil, w.replies.Payload(i), w.replies.segments[i])
		}
		w.mailer.send(r.fd)
		r.replies = chain{}
	}
	w.used, w.answering = 0, w.answering[:0]
}

// newSession returns a zero session that is in the list of open ones.
func (w *worker) newSession() *session {
	if w.free == nil {
		slab := make([]session, 16)
		for i := range slab {
			slab[i].links[every].next, w.free = w.free, &slab[i]
		}
	}
	s := w.free
	w.free = s.links[every].next
	*s = session{worker: w, connection: connection{fd: -1}, header: s.header[:0]}
	s.timer.Owner = s
	w.sessions.push(s)
	return s
}

// release takes back a session that has ended.
func (w *worker) release(s *session) {
	w.sessions.remove(s)
	s.links[every].next, s.route, s.offered, s.receiver, s.admitted, s.lease = w.free, nil, nil, nil, nil, balance.Lease{}
	w.free = s
}

// endAll ends at once the sessions that match, those that wait for late replies
// included.
func (w *worker) endAll(o l4.Outcome, match func(*session) bool) {
	for s := w.sessions.first; s != nil; {
		next := s.links[every].next
		if match(s) {
			s.end(o, l4.Proxy)
		}
		s = next
	}
}

// Kill ends everything.
func (w *worker) Kill(o l4.Outcome) { w.endAll(o, func(*session) bool { return true }) }

// FlushCounts is part of service.Worker.
func (w *worker) FlushCounts() {
	for s := w.sessions.first; s != nil; s = s.links[every].next {
		s.flushCounts()
	}
	for _, s := range w.sprayers {
		s.flushCounts()
	}
	for r := range w.receivers {
		r.flushCounts()
	}
}

// Shut closes everything, right before the loop stops.
func (w *worker) Shut() {
	w.down = true
	w.Kill(l4.Killed)
	for r := range w.receivers {
		r.Close()
	}
	for _, s := range w.sprayers {
		s.close()
	}
}
