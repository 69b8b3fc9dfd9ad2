// Package accesslog turns each ended flow into one line of text.
//
// Record is called on the event loops: it copies the Session into a bounded
// queue and returns. One goroutine formats and writes, many lines a write. When
// the target is slower than the traffic, lines are lost and counted; traffic is
// never held up for its own log.
//
//	f, err := accesslog.Open("/var/log/poise/access.log")
//	...
//	l := accesslog.New(f, accesslog.Poise, accesslog.DefaultQueue, slog.Default())
//	l.Record(&session)
//	l.Reopen() // after logrotate has renamed the file
//	l.Close()
//
// Every name is escaped, and what a stranger chose (an address and a port; in JSON
// also what its TLS handshake said) bounded in length, so that a line is always
// exactly one record and never a long one.
package accesslog

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
)

// DefaultQueue is a queue length that holds what arrives during one pause of
// the writer at some 800 000 connections a second; it takes 1.25 MiB.
const DefaultQueue = 4096

const (
	// pause is how long the writer rests after a write. The first line after a
	// quiet time is written at once; under load lines gather meanwhile, so that
	// neither a wake-up nor a system call is paid per connection.
	pause = 5 * time.Millisecond

	// chunk is how many bytes are gathered before they are written in any case.
	chunk = 64 << 10

	// stuckAfter and closeWithin bound Close: a pipe nobody reads must not hang a
	// shutdown, and one that is read slowly not for long. A target that knows
	// deadlines gives up by itself, earlier.
	stuckAfter  = time.Second
	closeWithin = 5 * time.Second
	giveUpAfter = stuckAfter / 2

	// complainEvery is how often a target that fails is logged.
	complainEvery = time.Minute
)

// ErrLinesLost is returned by Close when the target did not take the last lines,
// or not in time.
var ErrLinesLost = errors.New("accesslog: the last lines could not be written")

// A Log writes one line per recorded Session to its target. Its methods may be
// called from any goroutine.
type Log struct {
	// Set once.
	queue chan l4.Session
	poke  chan struct{} // one slot: the target has changed
	quit  chan struct{}
	done  chan struct{}
	log   *slog.Logger

	// Atomics.
	target atomic.Pointer[target]
	closed atomic.Bool
	lost   atomic.Uint64

	// Owned by the writer goroutine.
	buf       []byte
	torn      bool // the last write ended within a line
	complaint time.Time

	closeOnce sync.Once
	closeErr  error
}

// target is where lines go and how they look. It is immutable.
type target struct {
	w      io.Writer // nil: nothing is logged
	append appender
}

// An appender appends the line of s, newline included, to b.
type appender func(b []byte, s *l4.Session) []byte

// New returns a running log of the given format (Poise, TCPLog or JSON; any other
// panics) that holds at most queue sessions not yet written. A nil w logs
// nothing until Switch. Of w only a *File is ever closed. Trouble with w is
// told to log, at most once a minute.
func New(w io.Writer, format string, queue int, log *slog.Logger) *Log {
	l := &Log{
		queue: make(chan l4.Session, max(queue, 1)),
		poke:  make(chan struct{}, 1),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
		log:   log,
	}
	l.target.Store(newTarget(w, format))
	go l.write()
	return l
}

func newTarget(w io.Writer, format string) *target {
	if w == nil {
		return &target{}
	}
	f, ok := appenders[format]
	if !ok {
		panic("accesslog: no format " + format)
	}
	bound(w, 0)
	return &target{w: w, append: f}
}

// Record queues a copy of s. It never blocks and allocates nothing; without
// room for s, or after Close, it counts the line as lost.
func (l *Log) Record(s *l4.Session) {
	if l.target.Load().w == nil {
		return
	}
	if l.closed.Load() {
		l.lost.Add(1)
		return
	}
	select {
	case l.queue <- *s:
	default:
		l.lost.Add(1)
	}
}

// Dropped is how many lines were lost since New: for want of room in the queue,
// because the target failed, or because Close could not wait for it. It never
// falls.
func (l *Log) Dropped() uint64 { return l.lost.Load() }

// Switch makes w and format take over, as in New. The old target still gets
// what was recorded before; it has half a second for that, then, if it is a *File, it
// is closed.
func (l *Log) Switch(w io.Writer, format string) {
	old := l.target.Swap(newTarget(w, format))
	if !same(old.w, w) {
		bound(old.w, giveUpAfter)
	}
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Reopen opens the target anew if it is a *File, for logrotate. On an error the
// log goes on with the file it has.
func (l *Log) Reopen() error {
	if f, ok := l.target.Load().w.(*File); ok {
		return f.Reopen()
	}
	return nil
}

// Close writes what is queued and stops. It waits no longer than two seconds
// for a target that takes nothing, five for one that is slow; what is then left
// is lost and the error is ErrLinesLost.
func (l *Log) Close() error {
	l.closeOnce.Do(func() {
		l.closed.Store(true)
		lost := l.lost.Load()
		bound(l.target.Load().w, giveUpAfter)
		close(l.quit)
		if !l.awaitWriter() {
			l.lost.Add(max(uint64(len(l.queue)), 1))
		}
		if l.lost.Load() > lost {
			l.closeErr = ErrLinesLost
		}
	})
	return l.closeErr
}

// awaitWriter waits for the writer to end, for as long as Close may, and reports
// whether it did.
func (l *Log) awaitWriter() bool {
	tick := time.NewTicker(stuckAfter)
	defer tick.Stop()
	left := len(l.queue) + 1 // one more for what the writer has in its hands
	for range closeWithin / stuckAfter {
		select {
		case <-l.done:
			return true
		case <-tick.C:
		}
		now := len(l.queue)
		if now >= left {
			return false
		}
		left = now
	}
	return false
}

// same reports whether a and b are one writer. Writers need not be comparable.
func same(a, b io.Writer) bool {
	return a != nil && reflect.TypeOf(a).Comparable() && a == b
}

// bound gives w, if it knows deadlines, at most d for the write that goes on
// and those to come; 0 means all the time they need.
func bound(w io.Writer, d time.Duration) {
	dl, ok := w.(interface{ SetWriteDeadline(time.Time) error })
	if !ok {
		return
	}
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = dl.SetWriteDeadline(at) // a regular file has none and does not block
}

// write is the life of the writer goroutine.
func (l *Log) write() {
	defer close(l.done)
	t := l.target.Load()
	rest := time.NewTimer(pause)
	defer rest.Stop()
	for closing := false; !closing; {
		var s l4.Session
		one := false
		select {
		case s = <-l.queue:
			one = true
		case <-l.poke:
		case <-l.quit:
			closing = true
		}
		if t.w == nil { // whatever is queued was recorded for the next one
			t = l.target.Load()
		}
		if one {
			l.add(t, &s)
		}
		l.drain(t)
		if next := l.target.Load(); next != t {
			if !same(next.w, t.w) {
				t.close()
			}
			t = next
		}
		rest.Reset(pause)
		select {
		case <-rest.C:
		case <-l.quit:
		}
	}
	l.drain(t)
	t.close()
}

// drain writes what is queued, but no more than one queue's length of it, so
// that the writer gets to see a new target under any load.
func (l *Log) drain(t *target) {
	for range cap(l.queue) {
		select {
		case s := <-l.queue:
			l.add(t, &s)
			continue
		default:
		}
		break
	}
	l.flush(t)
}

func (l *Log) add(t *target, s *l4.Session) {
	if t.w == nil { // the target came and went meanwhile
		l.lost.Add(1)
		return
	}
	l.buf = t.append(l.buf, s)
	if len(l.buf) >= chunk {
		l.flush(t)
	}
}

func (l *Log) flush(t *target) {
	if len(l.buf) == 0 {
		return
	}
	p := l.buf
	l.buf = l.buf[:0]
	if l.torn { // end the broken line rather than continue it with another
		if _, err := t.w.Write([]byte{'\n'}); err != nil {
			l.lose(p, err)
			return
		}
		l.torn = false
	}
	n, err := t.w.Write(p)
	if err != nil {
		l.torn = n > 0 && p[n-1] != '\n'
		l.lose(p[n:], err)
	}
}

// lose counts the lines of p, which err kept from being written.
func (l *Log) lose(p []byte, err error) {
	l.lost.Add(uint64(bytes.Count(p, []byte{'\n'})))
	if !l.complaint.IsZero() && time.Since(l.complaint) < complainEvery {
		return
	}
	l.complaint = time.Now()
	l.log.Error("cannot write the access log; lines are lost until it can be written again",
		"error", err, "lost_so_far", l.lost.Load())
}

func (t *target) close() {
	if f, ok := t.w.(*File); ok {
		_ = f.Close() // what counts are the writes, and those were checked
	}
}
