// Package accesslog turns each ended flow into one line of text.
//
// Record is called on the event loops: it copies the Session into the queue of a
// spool and returns. When the target is slower than the traffic, lines are lost and
// counted; traffic is never held up for its own log.
//
//	f, err := spool.Open("/var/log/poise/access.log")
//	...
//	l := accesslog.New(f, accesslog.Poise, accesslog.DefaultQueue, slog.Default())
//	l.Record(&session)
//	l.Reopen(time.Second) // after logrotate has renamed the file
//	l.Close(time.Second)
//
// Every name is escaped, and what a stranger chose (an address and a port; in JSON
// also what its TLS handshake said) bounded in length, so that a line is always
// exactly one record and never a long one.
package accesslog

import (
	"io"
	"log/slog"
	"time"

	"github.com/poise-lb/poise/internal/spool"
	"github.com/poise-lb/poise/l4"
)

// DefaultQueue is a queue length that holds what arrives during one rest of
// the writer at some 800 000 connections a second; it takes 1.25 MiB.
const DefaultQueue = 4096

// rest is how long lines gather between two writes.
const rest = 5 * time.Millisecond

// A Log writes one line per recorded Session to its target. Its methods may be
// called from any goroutine; what they promise is said at spool.Spool.
type Log struct{ lines *spool.Spool[l4.Session] }

// An appender appends the line of s, newline included, to b.
type appender = spool.Appender[l4.Session]

// New returns a running log of the given format (Poise, TCPLog or JSON; any other
// panics) that holds at most queue sessions not yet written. A nil w logs
// nothing until Switch. Lines that are lost are told to log, now and then.
func New(w io.Writer, format string, queue int, log *slog.Logger) *Log {
	return &Log{spool.New(w, appends(w, format), spool.Options{Queue: queue, Rest: rest, Tell: func(lost uint64, err error) {
		if err != nil {
			log.Error("cannot write the access log; lines are lost until it can be written again", "error", err, "lost", lost)
			return
		}
		log.Warn("access log lines were lost: its reader or its disk is too slow", "lost", lost)
	}})}
}

func appends(w io.Writer, format string) appender {
	if w == nil {
		return nil
	}
	f, ok := appenders[format]
	if !ok {
		panic("accesslog: no format " + format)
	}
	return f
}

// Record queues a copy of s.
func (l *Log) Record(s *l4.Session) { l.lines.Put(s) }

// Dropped is how many lines were lost.
func (l *Log) Dropped() uint64 { return l.lines.Lost() }

// Stuck is for how long the target has been taking nothing; 0 if all is well.
func (l *Log) Stuck() time.Duration { return l.lines.Stuck() }

// Switch makes w and format take over, as in New.
func (l *Log) Switch(w io.Writer, format string) { l.lines.Switch(w, appends(w, format)) }

// Reopen opens the target anew if it is a file. On an error the log goes on with the
// file it has.
func (l *Log) Reopen(patience time.Duration) error { return l.lines.Reopen(patience) }

// Close writes what is queued and stops.
func (l *Log) Close(patience time.Duration) error { return l.lines.Close(patience) }
