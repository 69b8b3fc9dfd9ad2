package loop

import (
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// A round of the loop gives every kind of work a share of time, one after the other:
// events, descriptors that wait for another turn, posted functions, timers. What does
// not fit is left for the next round, in its order. So whatever there is to do, and
// however much of it comes from one peer, the loop comes back to the kernel and to
// each of the others within four shares and what the last turn of each takes longer.
//
// An event is told at once, because most of them ask for little, unless its descriptor
// had much to do at its last turn: then it goes to the back of the queue, where those
// are whose turn was cut short. With a hundred peers that move all they can, one that
// sends a few bytes waits for a share and not for a hundred turns.

const (
	// turnTime is how long one descriptor, posted function or timer keeps the loop if
	// there is more to do. It is a fifth of a share, so that some get a turn in each. To
	// end a turn and begin the next costs less than 1 µs: 1 % of it.
	turnTime = 100 * time.Microsecond
	// shareTime is how long one kind of work keeps the loop in a round. What a round
	// costs that finds nothing to do, mostly its epoll_wait, is about 1 µs, and ten
	// times that when the kernel has a hundred events to report: 2 % of a share.
	shareTime = 500 * time.Microsecond
	// A turn that asked for the time has told it to the share. The time of the others is
	// looked up after so many of them: small messages take 3 to 10 µs each, and reading
	// the clock 0.03 to 0.07, on some hosts ten times that.
	readClock = 8
)

// A share is the time that one kind of work has in the present round, and the turn
// under way in it.
type share struct {
	ends     time.Duration
	known    time.Duration // the clock when it was last read
	turnEnds time.Duration // 0 = the turn has not asked yet
	unread   int           // turns since the clock was read
}

func (s *share) begin(now time.Duration) { *s = share{ends: now + shareTime, known: now} }

// turn begins a turn of what has no share.
func (s *share) turn() { s.turnEnds = 0 }

// Enough reports whether the turn under way has lasted long enough, and others are to
// have theirs. A handler with more work than a single read or accept asks after each
// piece; the first time begins the measure and the answer is no. A handler that stops
// has itself called again by Again, a posted function by Post, a timer by Start.
func (l *Loop) Enough() bool {
	s := &l.share
	s.known, s.unread = l.Precise(), 0
	if s.turnEnds == 0 {
		s.turnEnds = s.known + turnTime
	}
	return s.known >= s.turnEnds
}

// shareIsOver is to be asked after every turn, which it ends.
func (l *Loop) shareIsOver() bool {
	s := &l.share
	if s.turnEnds == 0 {
		if s.unread++; s.unread >= readClock {
			s.known, s.unread = l.Precise(), 0
		}
	}
	s.turnEnds = 0
	return s.known >= s.ends
}

// Again has the handler of fd called with ev once the others that wait have had a
// turn: for work that is cut short so that one descriptor does not starve the others.
func (l *Loop) Again(fd int, ev sock.Events) {
	s := &l.slots[fd]
	s.events |= ev
	if !s.queued { // one turn a round, however often it is asked for
		s.queued = true
		l.queue = append(l.queue, reference{int32(fd), s.tag})
	}
}

// Waits reports whether fd waits for its turn: then what is to be done about it can
// wait until then too.
func (l *Loop) Waits(fd int) bool { return l.slots[fd].queued }

// registered returns the slot of r, or nil if that is another's by now, or free.
func (l *Loop) registered(r reference) *slot {
	if int(r.fd) < len(l.slots) {
		if s := &l.slots[r.fd]; s.handler != nil && s.tag == r.tag {
			return s
		}
	}
	return nil
}

// tellEvents tells handlers what the kernel has reported.
func (l *Loop) tellEvents() {
	l.share.begin(l.now)
	for e := &l.events; e.next < e.end; {
		ev := l.batch.Event(e.next)
		e.next++
		r := reference{ev.FD, ev.Tag}
		s := l.registered(r)
		if s == nil {
			continue
		}
		if s.queued || s.busy {
			l.Again(int(ev.FD), ev.Events)
			continue
		}
		if l.tell(r, s, ev.Events); l.shareIsOver() {
			return
		}
	}
}

// serveQueue gives those that wait a turn, from the front. What joins meanwhile is for
// the next round.
func (l *Loop) serveQueue() {
	end := len(l.queue)
	if end == 0 {
		return
	}
	l.share.begin(l.Precise())
	for over := false; l.served < end && !over; {
		r := l.queue[l.served]
		l.served++
		if s := l.registered(r); s != nil {
			ev := s.events
			s.queued, s.events = false, 0
			l.tell(r, s, ev)
			over = l.shareIsOver()
		}
	}
	if l.served > len(l.queue)/2 { // so that moving what is left costs less than serving did
		l.queue = l.queue[:copy(l.queue, l.queue[l.served:])]
		l.served = 0
	}
}

// tell gives the handler in s a turn.
func (l *Loop) tell(r reference, s *slot, ev sock.Events) {
	s.handler.Ready(ev)
	if s = l.registered(r); s != nil { // it may have gone, and the slots may have moved
		s.busy = l.share.turnEnds != 0
	}
}

// runPosted runs what was posted.
func (l *Loop) runPosted() {
	fresh := l.ran == len(l.posts)
	if fresh {
		l.mu.Lock()
		l.posts, l.posted = l.posted, l.posts[:0]
		l.mu.Unlock()
		l.ran = 0
	}
	if len(l.posts) > 0 {
		l.share.begin(l.Precise())
	}
	for over := false; l.ran < len(l.posts) && !over; l.ran++ {
		l.share.turn()
		l.posts[l.ran]()
		l.posts[l.ran] = nil
		l.share.known = l.Precise() // each may take long: a handshake has ended, an operator closes everything
		over = l.share.known >= l.share.ends
	}
	// What was posted since has woken the loop once, and will not do so again.
	l.late = !fresh || l.ran < len(l.posts)
}

// runTimers has timers expire that are due.
func (l *Loop) runTimers() {
	now := int64(l.now / tick)
	if at := l.wheel.next(); at >= 0 && at <= now {
		l.share.begin(l.Precise())
	}
	l.wheel.advance(now, l.shareIsOver)
}
