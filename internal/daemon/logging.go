package daemon

import (
	"context"
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/spool"
)

// What waits for the log's reader, at most. More than that is lost and counted:
// whatever logs something holds up checks, commands or the stop while it waits.
const (
	waitingMessages = 1024
	waitingBytes    = 1 << 20
)

// lastMessages is how long the end waits for a reader of the log that takes nothing.
const lastMessages = 200 * time.Millisecond

// logging is the log's target; a reload changes level and format under all the
// loggers that were handed out.
type logging struct {
	lines   *spool.Spool[[]byte]
	waiting atomic.Int64 // bytes in lines
	current atomic.Pointer[slog.Handler]
}

func newLogging(w io.Writer) *logging {
	l := &logging{}
	l.lines = spool.New(w, l.append, spool.Options{Queue: waitingMessages, Tell: l.tell})
	l.set(config.Log{Level: slog.LevelInfo})
	return l
}

func (l *logging) set(c config.Log) {
	var h slog.Handler = slog.NewTextHandler(l, &slog.HandlerOptions{Level: c.Level})
	if c.Format == "json" {
		h = slog.NewJSONHandler(l, &slog.HandlerOptions{Level: c.Level, ReplaceAttr: asInText})
	}
	l.current.Store(&h)
}

// asInText makes of what JSON has no word for the word that it is in the text form:
// 8s instead of 8000000000, killed instead of 11.
func asInText(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		return slog.String(a.Key, a.Value.Duration().String())
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error, encoding.TextMarshaler: // JSON does as text does
		case fmt.Stringer:
			return slog.String(a.Key, v.String())
		}
	}
	return a
}

// Write is part of io.Writer: p is one message. It does not wait.
func (l *logging) Write(p []byte) (int, error) {
	n := int64(len(p))
	if l.waiting.Add(n) > waitingBytes {
		l.waiting.Add(-n)
		l.lines.Drop()
		return len(p), nil
	}
	if line := slices.Clone(p); !l.lines.Put(&line) {
		l.waiting.Add(-n)
	}
	return len(p), nil
}

func (l *logging) append(b []byte, line *[]byte) []byte {
	l.waiting.Add(-int64(len(*line)))
	return append(b, *line...)
}

// tell has the log itself say what is missing in it.
func (l *logging) tell(lost uint64, err error) {
	if err != nil {
		l.logger().Error("messages could not be written and are lost", "lost", lost, "error", err)
		return
	}
	l.logger().Warn("messages are missing here: nothing has read the log for a while", "lost", lost)
}

// close writes what can be written at once. A reader that takes nothing is waited
// for no longer than lastMessages.
func (l *logging) close() { _ = l.lines.Close(lastMessages) }

// handler follows a logging. What With and WithGroup have added to a logger is
// applied to whichever handler is current.
type handler struct {
	*logging
	derive func(slog.Handler) slog.Handler
}

func (l *logging) logger() *slog.Logger {
	return slog.New(handler{l, func(h slog.Handler) slog.Handler { return h }})
}

// Enabled is part of slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return (*h.current.Load()).Enabled(ctx, level)
}

// Handle is part of slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	return h.derive(*h.current.Load()).Handle(ctx, r)
}

// WithAttrs is part of slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.logging, func(c slog.Handler) slog.Handler { return h.derive(c).WithAttrs(attrs) }}
}

// WithGroup is part of slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.logging, func(c slog.Handler) slog.Handler { return h.derive(c).WithGroup(name) }}
}
