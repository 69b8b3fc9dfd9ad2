// Package notice lets event loops tell an operator that something is wrong. A loop
// must not write logs, which may block: it posts a notice, of each kind and service
// at most one a second, and a goroutine writes it.
package notice

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A Kind is something that can go wrong.
type Kind struct {
	Text string // the message
	Key  string // the attribute that a detail is logged as
}

// A Gate lets one a second through. The zero Gate is ready; all methods are safe for
// concurrent use.
type Gate struct {
	at      atomic.Int64 // when the last one was let through, by now; 0 = none was
	skipped atomic.Uint64
}

// began is the origin of the times of gates. A wall clock that is set back would keep
// them shut for as long as it was set back.
var began = time.Now()

// Pass reports whether one may go through, and counts it if not.
func (g *Gate) Pass() bool {
	now := int64(time.Since(began) + time.Second) // never less than a second
	if last := g.at.Load(); last != 0 && now-last < int64(time.Second) || !g.at.CompareAndSwap(last, now) {
		g.skipped.Add(1)
		return false
	}
	return true
}

type notice struct {
	kind            Kind
	service, detail string
	skipped         uint64 // the same, not logged since the last one
}

// A Writer logs what is posted, as warnings.
type Writer struct {
	log     *slog.Logger
	posted  chan notice
	writing sync.WaitGroup
}

// queue is how many notices wait for a slow log.
const queue = 64

// NewWriter makes a writer to log; Close ends it.
func NewWriter(log *slog.Logger) *Writer {
	w := &Writer{log: log, posted: make(chan notice, queue)}
	w.writing.Go(w.write)
	return w
}

// Post has a notice about a service logged, unless the gate is shut or the log stuck:
// counters tell the rest. The detail may be empty. It does not wait, and must not be
// called after Close.
func (w *Writer) Post(g *Gate, k Kind, service, detail string) {
	if !g.Pass() {
		return
	}
	select {
	case w.posted <- notice{k, service, detail, g.skipped.Swap(0)}:
	default:
	}
}

// Close writes what is posted, and returns then.
func (w *Writer) Close() {
	close(w.posted)
	w.writing.Wait()
}

// write runs until Close.
func (w *Writer) write() {
	for n := range w.posted {
		args := []any{"service", n.service}
		if n.detail != "" {
			args = append(args, n.kind.Key, n.detail)
		}
		if n.skipped > 0 {
			args = append(args, "more_since_last", n.skipped)
		}
		w.log.Warn(n.kind.Text, args...)
	}
}
