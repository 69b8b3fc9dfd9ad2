package loadgen

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Kind is a class of failed requests.
type Kind string

// The kinds of errors.
const (
	Refused       Kind = "refused"        // nothing listens there
	Unreachable   Kind = "unreachable"    // no route, or an ICMP error
	TimedOut      Kind = "timeout"        // no complete reply in Options.Timeout
	Reset         Kind = "reset"          // the connection was reset
	Closed        Kind = "closed"         // the connection ended before the reply
	WrongReply    Kind = "wrong_reply"    // the reply is not an echo of the request
	NoLocalPort   Kind = "no_local_port"  // this host ran out of ports
	NoDescriptors Kind = "no_descriptors" // this process ran out of descriptors
	Other         Kind = "other"
)

func kindOf(err error) Kind {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	switch {
	case is(errReply):
		return WrongReply
	case is(io.EOF, io.ErrUnexpectedEOF):
		return Closed
	case is(syscall.ECONNREFUSED):
		return Refused
	case is(syscall.ECONNRESET, syscall.EPIPE):
		return Reset
	case is(syscall.EADDRNOTAVAIL, syscall.EADDRINUSE):
		return NoLocalPort
	case is(syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM):
		return NoDescriptors
	case is(syscall.EHOSTUNREACH, syscall.ENETUNREACH):
		return Unreachable
	case is(context.DeadlineExceeded, syscall.ETIMEDOUT) || isTimeout(err):
		return TimedOut
	}
	return Other
}

// Latency is a distribution of times from a request's start (see Options.Rate)
// to the end of its reply, a connect included where there was one. Quantiles
// are at most 0.1 % high.
type Latency struct {
	Mean, P50, P95, P99, Max time.Duration
}

// BackendResult is what one server did, by the name in its replies.
type BackendResult struct {
	Name     string // "" for servers that do not name themselves
	Requests uint64
	Latency  Latency
}

// ErrorResult is one kind of failure.
type ErrorResult struct {
	Kind  Kind
	Count uint64
	First string // the first such error
}

// Result of a run.
type Result struct {
	Elapsed     time.Duration // from the start to the last reply
	Requests    uint64        // answered
	Failed      uint64
	Unsent      uint64 // due by the schedule of an open loop and never begun: too few clients
	Connections uint64 // established; over UDP sockets opened
	Latency     Latency
	Backends    []BackendResult // by name
	Errors      []ErrorResult   // the most frequent first
}

// PerSecond is the rate of answered requests.
func (r Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Requests) / r.Elapsed.Seconds()
}

// Lost is how many requests had no reply in time. Over UDP that is a loss.
func (r Result) Lost() uint64 {
	for _, e := range r.Errors {
		if e.Kind == TimedOut {
			return e.Count
		}
	}
	return 0
}

// tally collects the ends of requests. One lock for all clients is enough: it
// is held for less than a thousandth of what a request costs.
type tally struct {
	connections atomic.Uint64

	mu       sync.Mutex // guards the following
	all      *hdrhistogram.Histogram
	backends map[string]*hdrhistogram.Histogram
	errors   map[Kind]*ErrorResult
}

func newTally() *tally {
	return &tally{
		all:      newHistogram(),
		backends: make(map[string]*hdrhistogram.Histogram),
		errors:   make(map[Kind]*ErrorResult),
	}
}

// longest is the highest latency told apart from others, in microseconds.
const longest = int64(10 * time.Minute / time.Microsecond)

// newHistogram counts microseconds with three significant digits: 160 KiB.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

func (t *tally) add(s Sample) {
	us := min(max(s.Latency.Microseconds(), 1), longest)
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Err != nil {
		kind := kindOf(s.Err)
		e := t.errors[kind]
		if e == nil {
			e = &ErrorResult{Kind: kind, First: s.Err.Error()}
			t.errors[kind] = e
		}
		e.Count++
		return
	}
	h := t.backends[s.Backend]
	if h == nil {
		h = newHistogram()
		t.backends[s.Backend] = h
	}
	_ = h.RecordValue(us) // us is within the range, the only thing that can be wrong
	_ = t.all.RecordValue(us)
}

func (t *tally) result() Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	res := Result{
		Requests:    uint64(t.all.TotalCount()),
		Connections: t.connections.Load(),
		Latency:     latencyOf(t.all),
	}
	for name, h := range t.backends {
		res.Backends = append(res.Backends, BackendResult{Name: name, Requests: uint64(h.TotalCount()), Latency: latencyOf(h)})
	}
	slices.SortFunc(res.Backends, func(a, b BackendResult) int { return cmp.Compare(a.Name, b.Name) })
	for _, e := range t.errors {
		res.Failed += e.Count
		res.Errors = append(res.Errors, *e)
	}
	slices.SortFunc(res.Errors, func(a, b ErrorResult) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind))
	})
	return res
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	at := func(q float64) time.Duration {
		return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond
	}
	return Latency{
		Mean: time.Duration(h.Mean() * float64(time.Microsecond)),
		P50:  at(50), P95: at(95), P99: at(99),
		Max: time.Duration(h.Max()) * time.Microsecond,
	}
}
