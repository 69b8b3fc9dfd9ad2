// Package spool carries lines to where they are written, so that work never waits
// for its log.
//
// Put copies an item into a bounded queue and returns. One goroutine makes lines of
// the items and writes them, many lines a write. When the target takes lines more
// slowly than they come, or none at all, those that find no room are lost and
// counted.
//
//	s := spool.New(os.Stderr, appendLine, spool.Options{Queue: 1024, Tell: tell})
//	s.Put(&item)
//	s.Close(time.Second)
package spool

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// chunk is how many bytes are gathered before they are written in any case.
	chunk = 64 << 10

	// failuresEvery and lossesEvery bound how often Tell is called.
	failuresEvery = time.Minute
	lossesEvery   = 10 * time.Second

	// slowly is how many times its patience Close waits for a target that takes
	// lines, but takes them slowly.
	slowly = 3

	// switching is how long a target that another one replaces has for what it was
	// given.
	switching = 500 * time.Millisecond
)

// ErrLinesLost is returned by Close when the target did not take the last lines,
// or not in time.
var ErrLinesLost = errors.New("the last lines could not be written")

// An Appender appends the line of an item, newline included, to b.
type Appender[T any] func(b []byte, item *T) []byte

// Options say how a spool works.
type Options struct {
	Queue int // how many items wait, at most

	// Rest is how long the writer rests after a write. The first line after a quiet
	// time is written at once; under load lines gather meanwhile, so that neither a
	// wake-up nor a system call is paid per line. 0 is no rest.
	Rest time.Duration

	// Tell is told that lines were lost, how many since it was last told, and the
	// error of the target; without an error the target takes lines again. It is
	// called on the writer's goroutine and not often. It may call Put.
	Tell func(lost uint64, err error)
}

// A Spool writes one line per item to its target. Its methods may be called from
// any goroutine.
type Spool[T any] struct {
	// Set once.
	queue chan T
	rest  time.Duration
	tell  func(lost uint64, err error)

	// Atomics.
	current atomic.Pointer[outlet[T]]
	closed  atomic.Bool
	lost    atomic.Uint64

	mu     sync.Mutex // guards the following; held by no writer that writes
	told   uint64     // of lost
	toldAt time.Time

	closeOnce sync.Once
	closeErr  error
}

// New returns a running spool. A nil w takes nothing until Switch. Of writers only
// a *File is ever closed.
func New[T any](w io.Writer, append Appender[T], o Options) *Spool[T] {
	s := &Spool[T]{queue: make(chan T, max(o.Queue, 1)), rest: o.Rest, tell: o.Tell}
	s.current.Store(s.open(w, append, nil))
	return s
}

// Put queues a copy of the item and reports whether it has. It never waits and
// allocates nothing; without room, or after Close, it counts a line as lost.
func (s *Spool[T]) Put(item *T) bool {
	if s.current.Load().w == nil {
		return false
	}
	if !s.closed.Load() {
		select {
		case s.queue <- *item:
			return true
		default:
		}
	}
	s.lost.Add(1)
	return false
}

// Drop counts a line as lost that the caller does not put.
func (s *Spool[T]) Drop() { s.lost.Add(1) }

// Lost is how many lines were lost since New: for want of room in the queue,
// because the target failed, or because Close could not wait for it. It never
// falls.
func (s *Spool[T]) Lost() uint64 { return s.lost.Load() }

// Stuck is for how long the target has been taking nothing of what it was given; 0
// if it was given nothing.
func (s *Spool[T]) Stuck() time.Duration {
	since := s.current.Load().since.Load()
	if since == 0 {
		return 0
	}
	return time.Duration(now() - since)
}

// Switch makes w and append take over, as in New, at once, even if the old target
// is stuck. That one has half a second for what it was given, then, if it is a
// *File, it is closed. What is queued goes to either.
func (s *Spool[T]) Switch(w io.Writer, append Appender[T]) {
	old := s.current.Load()
	s.current.Store(s.open(w, append, old))
	close(old.quit)
}

// Reopen opens the target anew if it is a *File, for logrotate; see File.Reopen.
func (s *Spool[T]) Reopen(patience time.Duration) error {
	if f, ok := s.current.Load().w.(*File); ok {
		return f.Reopen(patience)
	}
	return nil
}

// Close writes what is queued and stops. It gives up once the target has taken
// nothing for as long as its patience lasts (one that knows deadlines gives up by
// itself, earlier), and on one that is slow after three times that. What is then
// left is lost and the error is ErrLinesLost. Switch must not be called any more.
func (s *Spool[T]) Close(patience time.Duration) error {
	s.closeOnce.Do(func() {
		s.closed.Store(true)
		lost := s.lost.Load()
		o := s.current.Load()
		bound(o.w, patience/2)
		close(o.quit)
		if !s.await(o, patience) {
			s.lost.Add(max(uint64(len(s.queue)), 1))
		}
		if s.lost.Load() > lost {
			s.closeErr = ErrLinesLost
		}
	})
	return s.closeErr
}

// await waits for the writer to end, for as long as Close may, and reports whether
// it did.
func (s *Spool[T]) await(o *outlet[T], patience time.Duration) bool {
	tick := time.NewTicker(patience)
	defer tick.Stop()
	left := len(s.queue) + 1 // one more for what the writer has in its hands
	for range slowly {
		select {
		case <-o.done:
			return true
		case <-tick.C:
		}
		now := len(s.queue)
		if now >= left {
			return false
		}
		left = now
	}
	return false
}

// tellAtMost tells what was lost since the last time, unless that was just now.
func (s *Spool[T]) tellAtMost(every time.Duration, err error) {
	s.mu.Lock()
	if !s.toldAt.IsZero() && time.Since(s.toldAt) < every {
		s.mu.Unlock()
		return
	}
	lost := s.lost.Load()
	since := lost - s.told
	s.told, s.toldAt = lost, time.Now()
	s.mu.Unlock()
	s.tell(since, err)
}

// began is the origin of now, which the wall clock does not move.
var began = time.Now()

// now is never 0.
func now() int64 { return int64(time.Since(began)) + 1 }
