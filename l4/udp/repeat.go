package udp

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// Where it is known how many replies a request has, it is known which ones wait, too.
// What a backend has refused, or not answered when it goes down or is closed, is sent to
// another backend, as a resolver would do after seconds. That takes copies of what the client has
// sent. They are kept until the first reply, for from then on it cannot be told which of
// several requests the backend has not answered; so a session's requests are repeated
// all together, once, or not at all.
//
// The session goes on with another backend in place of the first. What that one may still
// say is lost with its socket, whose port rests; it would be a second answer.

const (
	// maxRequest is the largest datagram that is kept: what an Ethernet brings in one
	// piece, and some more.
	maxRequest = 2048
	// maxRequests is how many a session keeps. Resolvers ask for both address families
	// at once; a client that has sent more does not wait for one answer.
	maxRequests = 4
	// maxKept is how many all sessions of a loop keep, 2 MiB. Beyond that the oldest
	// session's are given up: its client is the first to lose patience.
	maxKept = 1024
	// repeatsAtOnce is how many sessions get another backend in a round: each costs as
	// much as a new session.
	repeatsAtOnce = 32
)

// A request is a copy of a datagram of a client.
type request struct {
	next *request // of the session, or spare
	size int
	data [maxRequest]byte
}

// keep keeps what the client has sent, if it can still be repeated.
func (s *session) keep(payload []byte, segment int) {
	for !s.spent && s.replies == 0 {
		n := len(payload)
		if segment > 0 {
			n = min(n, segment)
		}
		if !s.keepOne(payload[:n]) {
			s.forget()
			s.spent = true
			return
		}
		if payload = payload[n:]; len(payload) == 0 {
			return
		}
	}
}

func (s *session) keepOne(payload []byte) bool {
	w, n, end := s.worker, 0, &s.kept
	for ; *end != nil; end = &(*end).next {
		n++
	}
	if len(payload) > maxRequest || n == maxRequests {
		return false
	}
	if w.spare == nil {
		if w.made == maxKept {
			if w.keepers.last == s {
				return false
			}
			w.keepers.last.forget()
		} else {
			w.makeRequests()
		}
	}
	k := w.spare
	w.spare, k.next, k.size = k.next, nil, copy(k.data[:], payload)
	*end = k
	if n == 0 {
		w.keepers.push(s)
	}
	return true
}

// makeRequests makes room for some more requests.
func (w *worker) makeRequests() {
	slab := make([]request, 32)
	for i := range slab {
		slab[i].next, w.spare = w.spare, &slab[i]
	}
	w.made += len(slab)
}

// forget gives up what is kept: it is answered, or has been repeated.
func (s *session) forget() {
	if s.kept == nil {
		return
	}
	w, last := s.worker, s.kept
	for last.next != nil {
		last = last.next
	}
	last.next, w.spare, s.kept = w.spare, s.kept, nil
	s.spent, s.scheduled = true, false
	w.keepers.remove(s)
}

// schedule has what the session has kept repeated at the end of the round.
func (s *session) schedule() {
	if s.kept != nil && s.retries == 0 && !s.scheduled {
		s.scheduled = true
		s.worker.scheduled = append(s.worker.scheduled, s)
	}
}

// repeatAll has what b, which has gone down, has not answered repeated.
func (w *worker) repeatAll(b *balance.Backend) {
	for s := w.keepers.last; s != nil; s = s.links[keeping].prev {
		if s.lease.Backend() == b && !s.welcome() {
			s.schedule()
		}
	}
}

// repeat takes some of the sessions that are scheduled.
func (w *worker) repeat() {
	n := min(len(w.scheduled), repeatsAtOnce)
	for _, s := range w.scheduled[:n] {
		if s.scheduled { // else it has ended meanwhile, or has been answered
			s.scheduled = false
			s.repeat()
		}
	}
	w.scheduled = w.scheduled[:copy(w.scheduled, w.scheduled[n:])]
	if len(w.scheduled) > 0 {
		w.loop.Start(&w.piece, time.Millisecond)
	}
}

// Expired begins the round in which the next of them are taken.
func (w *worker) Expired(*loop.Timer) {}

// repeat sends what the session has kept to another backend, which is its own from then
// on. It reports false if nothing is kept, there is no other backend or no retry left: then
// all stays as it is. Nothing of the session may be in a tray.
func (s *session) repeat() bool {
	w, first, pool := s.worker, s.lease.Backend(), s.route.Pool
	if s.kept == nil || !s.route.Spec.Retry ||
		!pool.Others(func(b *balance.Backend) bool { return b == first }) ||
		!pool.AllowRetry(s.evidence(), s.flow.Client.Addr()) {
		return false
	}
	s.flushCounts() // to the one that was sent them
	lease, old := s.lease, s.connection
	doubtful := s.doubtful
	s.confirm() // for the moment: it must not make room for itself
	s.connection = connection{fd: -1}
	o := s.connect(first)
	if doubtful {
		s.doubtful = true
		s.receiver.unconfirmed.push(s)
	}
	if o != l4.OK {
		s.connection = old
		return false
	}
	s.hangUp(old, first.Addr().AddrPort)
	lease.Report(false, 0)
	lease.Release()
	s.chosen, s.last = w.loop.Now(), w.loop.Now()
	s.told, s.bursts, s.lost = untold, false, 0
	s.retries++
	s.route.service.Stats.Retries.Add(1)
	s.introduce()
	for k := s.kept; k != nil; k = k.next {
		s.sendAgain(k.data[:k.size])
	}
	s.forget()
	return true
}

// evidence is what a request that has to be repeated says about the backend that had it.
// What has no answer may deserve none, and who is refused by a backend that sees its
// address may be refused alone.
func (s *session) evidence() l4.Evidence {
	if _, transparent := s.route.source(s.flow, s.backend()); s.told == refuses && !transparent {
		return l4.Failed
	}
	return l4.Doubtful
}

// sendAgain sends what the session's counters, and so the service's, know already. The
// backend's do not.
func (s *session) sendAgain(payload []byte) {
	w := s.worker
	w.scratch = append(append(w.scratch[:0], s.header...), payload...)
	_, errno := sock.Write(int(s.fd), w.scratch)
	if errno == sock.ECONNREFUSED { // the one before
		s.refused()
		_, errno = sock.Write(int(s.fd), w.scratch)
	}
	if errno != 0 {
		s.route.service.Stats.drop(dropReason(errno), 1)
		return
	}
	s.lease.Backend().Stats.BytesIn.Add(uint64(len(payload)))
	if s.route.SendProxy == ProxyFirst {
		s.header = s.header[:0]
	}
}
