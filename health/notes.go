package health

import (
	"context"
	"time"
)

// notes are what a probe tells, and is told, besides its answer. They travel with
// its context, for few probers have any.
type notes struct {
	up          bool      // set before the probe: the state of the target
	ports       Ports     // set before the probe; nil = all are free
	answered    time.Time // when the answer was known; zero = when Probe returned
	certExpires time.Time // zero = there was no certificate
}

type notesKey struct{}

// notesOf returns the notes of the probe with this ctx, to be written on.
func notesOf(ctx context.Context) *notes {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		return n
	}
	return &notes{}
}

// answered notes that the probe with this ctx knows its answer and only tidies up
// from here on, which is not to be counted as the backend's time.
func answered(ctx context.Context) {
	if n := notesOf(ctx); n.answered.IsZero() {
		n.answered = time.Now()
	}
}

// withPorts returns a context for probes whose datagrams are to keep clear of the ports
// of others.
func withPorts(ctx context.Context, p Ports) context.Context {
	return context.WithValue(ctx, notesKey{}, &notes{ports: p})
}

// result is what one probe found out.
type result struct {
	err         error         // of Probe
	took        time.Duration // until the answer was known
	certExpires time.Time     // zero = no certificate was seen
}

// timed runs one probe of a target that is up or not, and measures how long it
// took to know its answer.
func timed(ctx context.Context, p Prober, up bool) result {
	n := &notes{up: up, ports: notesOf(ctx).ports}
	start := time.Now()
	err := p.Probe(context.WithValue(ctx, notesKey{}, n))
	if n.answered.IsZero() {
		n.answered = time.Now()
	}
	return result{err, n.answered.Sub(start), n.certExpires}
}
