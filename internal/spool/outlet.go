package spool

import (
	"bytes"
	"io"
	"reflect"
	"sync/atomic"
	"time"
)

// An outlet is a target and the goroutine that writes to it. A target that is stuck
// keeps its goroutine; the next one has its own.
type outlet[T any] struct {
	// Set once.
	*Spool[T]
	w      io.Writer // nil: nothing is written
	append Appender[T]
	after  <-chan struct{} // closed when the writer may begin; nil = at once
	quit   chan struct{}
	done   chan struct{}

	since atomic.Int64 // when the write began that goes on; see now. 0 = there is none

	// Owned by the writer goroutine.
	buf    []byte
	torn   bool // the last write ended within a line
	failed bool // the last write did
}

// open makes the outlet of w, which follows old if that is not nil.
func (s *Spool[T]) open(w io.Writer, append Appender[T], old *outlet[T]) *outlet[T] {
	o := &outlet[T]{Spool: s, w: w, append: append, quit: make(chan struct{}), done: make(chan struct{})}
	if old != nil {
		if same(old.w, w) {
			o.after = old.done
		} else {
			bound(old.w, switching)
		}
	}
	if w == nil {
		close(o.done)
		return o
	}
	if o.after == nil {
		bound(w, 0)
	}
	go o.write()
	return o
}

// write is the life of the writer goroutine.
func (o *outlet[T]) write() {
	defer close(o.done)
	if o.after != nil {
		o.since.Store(now())
		<-o.after
		o.since.Store(0)
	}
	rest := time.NewTimer(o.rest)
	defer rest.Stop()
	for closing := false; !closing; {
		select {
		case item := <-o.queue:
			o.add(&item)
		case <-o.quit:
			closing = true
		}
		o.writeQueued()
		o.tellLosses()
		rest.Reset(o.rest)
		select {
		case <-rest.C:
		case <-o.quit:
		}
	}
	o.close()
}

// writeQueued writes what is queued, but no more than one queue's length of it, so
// that the writer gets to see its end under any load.
func (o *outlet[T]) writeQueued() {
	for range cap(o.queue) {
		select {
		case item := <-o.queue:
			o.add(&item)
			continue
		default:
		}
		break
	}
	o.flush()
}

func (o *outlet[T]) add(item *T) {
	o.buf = o.append(o.buf, item)
	if len(o.buf) >= chunk {
		o.flush()
	}
}

func (o *outlet[T]) flush() {
	if len(o.buf) == 0 {
		return
	}
	p := o.buf
	o.buf = o.buf[:0]
	o.since.Store(now())
	defer o.since.Store(0)
	if o.torn { // end the broken line rather than continue it with another
		if _, err := o.w.Write([]byte{'\n'}); err != nil {
			o.lose(p, err)
			return
		}
		o.torn = false
	}
	n, err := o.w.Write(p)
	o.failed = err != nil
	if err != nil {
		o.torn = n > 0 && p[n-1] != '\n'
		o.lose(p[n:], err)
	}
}

// lose counts the lines of p, which err kept from being written.
func (o *outlet[T]) lose(p []byte, err error) {
	o.lost.Add(uint64(bytes.Count(p, []byte{'\n'})))
	o.tellAtMost(failuresEvery, err)
}

// tellLosses tells of lines that are lost though the target takes some. It waits
// until there is room for what Tell may want to say here.
func (o *outlet[T]) tellLosses() {
	if o.failed {
		return
	}
	o.mu.Lock()
	untold := o.Spool.lost.Load() > o.told
	o.mu.Unlock()
	if untold && len(o.queue) <= cap(o.queue)/2 {
		o.tellAtMost(lossesEvery, nil)
	}
}

// close closes the target if it is a file that the next one does not write to.
func (o *outlet[T]) close() {
	f, ok := o.w.(*File)
	if next := o.current.Load(); ok && (next == o || !same(f, next.w)) {
		_ = f.Close() // what counts are the writes, and those were checked
	}
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
