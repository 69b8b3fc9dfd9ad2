// Package loop is the event loop of the data path: one goroutine that owns an
// epoll descriptor, the handlers of the descriptors registered with it and
// their timers.
//
//	l, err := loop.New()
//	go l.Run()
//	l.Post(func() { l.Add(fd, handler) })
//
// Everything but Post, Stop, Waited and Rounds is for the loop's own goroutine:
// handlers, timers and posted functions run on it, one after the other, and none
// of them may block. What could take long is to be cut short, see Enough. There is no
// lock but the one around posted functions.
package loop

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// Handler is told what its descriptor is ready for.
type Handler interface {
	// Ready runs on the loop. Readiness is edge-triggered: what is not used up
	// is not reported again, unless it is asked for with Again.
	Ready(ev sock.Events)
}

// Loop is one event loop.
type Loop struct {
	epoll *sock.Epoll
	done  chan struct{} // closed when Run has returned

	// Owned by the loop.
	batch  sock.Batch
	events span   // of the batch, not told yet
	slots  []slot // indexed by descriptor
	tags   uint32
	queue  []reference // descriptors that wait for a turn
	served int         // of the queue
	after  []func()
	posts  []func() // taken from posted
	ran    int      // of posts
	late   bool     // posts may be left, or posted
	wheel  wheel
	start  time.Time
	now    time.Duration
	asked  time.Duration // how long the latest wait was to be, at most
	lost   time.Duration // since start, in which the process did not run
	share  share
	stop   bool

	mu     sync.Mutex
	posted []func() // guarded by mu
	closed bool     // guarded by mu

	waiting atomic.Int64 // nanoseconds spent blocked
	rounds  atomic.Uint64
}

// A slot is one registered descriptor. The kernel reuses numbers at once, so an
// event counts only if it carries the tag of the registration.
type slot struct {
	handler Handler
	tag     uint32
	events  sock.Events // to be told at its turn
	queued  bool
	busy    bool // had more to do, at its last turn, than others wait for
}

type reference struct {
	fd  int32
	tag uint32
}

// A span is the part of the batch that is left.
type span struct{ next, end int }

// New opens a loop; Run has to be called to end and free it.
func New() (*Loop, error) {
	e, err := sock.NewEpoll()
	if err != nil {
		return nil, err
	}
	l := &Loop{epoll: e, done: make(chan struct{}), start: time.Now()}
	l.wheel.init(0)
	return l, nil
}

// Run serves the loop until Stop. While events come often it keeps a processor of
// the Go scheduler (GOMAXPROCS) to itself: there should be one more of them than
// loops. It must not be locked to a thread: blocking there costs a futex
// hand-off for every wake-up.
func (l *Loop) Run() {
	defer close(l.done)
	defer l.epoll.Close()
	for !l.stop {
		if l.events.next == l.events.end {
			l.events = span{0, l.wait()}
		}
		l.now = l.clock()
		l.rounds.Add(1)
		l.tellEvents()
		l.serveQueue()
		l.runAfter()
		l.runPosted()
		l.runTimers()
		// Again: what was posted, and timers, may leave something to the end of the
		// round too. Not only now, because what is posted may close what holds it.
		l.runAfter()
	}
}

// overslept is by how much a round may be late until the process is taken for one that
// did not run: stopped, or on a machine that was.
const overslept = 250 * time.Millisecond

// clock returns the time of a new round. Time in which the process did not run does not
// count: what peers have sent meanwhile comes first, and who needed an answer of ours to
// go on could not do so. Of a wait that was too long half counts, so that timers
// expire also where every wait is.
func (l *Loop) clock() time.Duration {
	now := time.Since(l.start) - l.lost
	if step := now - l.now; step > l.asked+overslept {
		counts := max(l.asked/2, tick)
		l.lost += step - counts
		now = l.now + counts
	}
	return now
}

func (l *Loop) runAfter() {
	for _, f := range l.after {
		l.share.turn()
		f()
	}
}

// patience is how long a loop waits for events, in milliseconds, before it lets
// the scheduler know. Under load the next event comes sooner: then a round costs
// one system call and the scheduler has no part in it. To leave a processor to
// it and take it back, for every gap of a few microseconds, costs more than all
// else a loop does.
const patience = 2

// forever is the wait of a loop without timers: no clock is late for it.
const forever = time.Duration(1 << 60)

// wait collects events into the batch.
func (l *Loop) wait() int {
	l.asked = 0
	if l.served < len(l.queue) || l.late {
		return l.epoll.Poll(&l.batch, 0)
	}
	before := time.Since(l.start)
	timeout := -1
	if at := l.wheel.next(); at >= 0 {
		left := time.Duration(at)*tick - (before - l.lost)
		timeout = int(max(left+time.Millisecond-1, 0) / time.Millisecond)
	}
	l.asked = time.Duration(timeout) * time.Millisecond
	if timeout < 0 {
		l.asked = forever
	}
	n := 0
	if timeout >= 0 && timeout <= patience {
		n = l.epoll.Poll(&l.batch, timeout)
	} else if n = l.epoll.Poll(&l.batch, patience); n == 0 {
		n = l.epoll.Wait(&l.batch, max(timeout-patience, -1))
	}
	l.waiting.Add(int64(time.Since(l.start) - before))
	return n
}

// Add registers fd, edge-triggered, for every event; h hears of what is ready
// already too. The descriptor stays the caller's.
func (l *Loop) Add(fd int, h Handler) sock.Errno { return l.add(fd, h, (*sock.Epoll).Add) }

// AddDatagrams is Add of a UDP socket, which is always ready to send: h hears of
// what there is to receive, and of failures.
func (l *Loop) AddDatagrams(fd int, h Handler) sock.Errno {
	return l.add(fd, h, (*sock.Epoll).AddDatagrams)
}

func (l *Loop) add(fd int, h Handler, register func(e *sock.Epoll, fd int, tag uint32) sock.Errno) sock.Errno {
	l.tags++
	// First of all: Remove and Again may be called even if the kernel says no.
	if fd >= len(l.slots) {
		grown := make([]slot, max(fd+1, len(l.slots)*3/2, 64))
		copy(grown, l.slots)
		l.slots = grown
	}
	if err := register(l.epoll, fd, l.tags); err != 0 {
		return err
	}
	l.slots[fd] = slot{handler: h, tag: l.tags}
	return 0
}

// AfterEvents has f called in every round from now on, when all handlers have been
// told what is ready, and once more at the end of the round.
func (l *Loop) AfterEvents(f func()) { l.after = append(l.after, f) }

// Remove forgets fd, right before the caller closes it.
func (l *Loop) Remove(fd int) { l.slots[fd] = slot{} }

// Detach is Remove of a descriptor whose socket has others, here or in another process:
// it lives on when fd is closed, and the kernel would go on reporting it.
func (l *Loop) Detach(fd int) {
	l.Remove(fd)
	l.epoll.Delete(fd)
}

// Now returns the time that the process has run since the loop was made, as of the
// present round.
func (l *Loop) Now() time.Duration { return l.now }

// Precise reads the clock: Now, without the time this round has taken so far.
func (l *Loop) Precise() time.Duration { return time.Since(l.start) - l.lost }

// Start (re)starts t to expire d from now, rounded up to 4 ms.
func (l *Loop) Start(t *Timer, d time.Duration) {
	if t.next != nil {
		t.unlink()
	}
	t.deadline = int64((l.now + max(d, 0) + tick - 1) / tick)
	if t.deadline <= l.wheel.now { // the present tick may have been served
		t.deadline = l.wheel.now + 1
	}
	l.wheel.add(t)
}

// StopTimer stops t, if it runs.
func (l *Loop) StopTimer(t *Timer) {
	if t.next != nil {
		t.unlink()
	}
}

// Post has f run on the loop, after what was posted before; it reports false,
// and f will not run, if the loop has been stopped. Safe from any goroutine.
func (l *Loop) Post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.posted = append(l.posted, f)
	if len(l.posted) == 1 {
		l.epoll.Wake()
	}
	return true
}

// Stop ends Run after what was posted before, and waits for it. Safe from any
// goroutine but the loop's own.
func (l *Loop) Stop() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.posted = append(l.posted, func() { l.stop = true })
		l.epoll.Wake()
	}
	l.mu.Unlock()
	<-l.done
}

// Waited returns how long the loop has been blocked for want of work, in all.
// Safe from any goroutine.
func (l *Loop) Waited() time.Duration { return time.Duration(l.waiting.Load()) }

// Rounds counts the loop's turns. Safe from any goroutine.
func (l *Loop) Rounds() uint64 { return l.rounds.Load() }
