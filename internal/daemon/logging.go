package daemon

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/poise-lb/poise/internal/config"
)

// logging is the log's target; a reload changes level and format under all the
// loggers that were handed out.
type logging struct {
	w       io.Writer
	current atomic.Pointer[slog.Handler]
}

func newLogging(w io.Writer) *logging {
	l := &logging{w: w}
	l.set(config.Log{Level: slog.LevelInfo})
	return l
}

func (l *logging) set(c config.Log) {
	o := &slog.HandlerOptions{Level: c.Level}
	var h slog.Handler = slog.NewTextHandler(l.w, o)
	if c.Format == "json" {
		h = slog.NewJSONHandler(l.w, o)
	}
	l.current.Store(&h)
}

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
