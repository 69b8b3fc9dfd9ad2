package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// A Prober asks one backend one question.
//
// Probe returns nil if the backend is healthy, else a *Failure (or an error that
// wraps one), or ErrLocal (wrapped) when this host could not ask. The deadline of
// ctx bounds everything it does; once ctx has ended it returns without delay, and
// when it returns its socket is closed. A Monitor has one Probe at a time running
// on a Prober.
type Prober interface {
	Probe(ctx context.Context) error
}

// Reason says in which layer a probe failed and how: a word of status, logs and
// metric labels. The list is closed.
type Reason string

// The ways a probe fails. The words are HAProxy's.
const (
	L4CON  Reason = "L4CON"  // refused, unreachable, or reset while connecting
	L4TOUT Reason = "L4TOUT" // no connection within the timeout
	L6RSP  Reason = "L6RSP"  // no TLS handshake: a bad certificate, or not TLS at all
	L6TOUT Reason = "L6TOUT" // connected, but no TLS handshake within the timeout
	L7RSP  Reason = "L7RSP"  // a wrong, broken or cut-off answer
	L7STS  Reason = "L7STS"  // a well-formed answer with the wrong status
	L7TOUT Reason = "L7TOUT" // connected, but no complete answer within the timeout
	PROC   Reason = "PROC"   // the command failed, or did not end within the timeout
	DNS    Reason = "DNS"    // a DNS answer without the record that is wanted
	LAG    Reason = "LAG"    // a replica too far behind, or cut off from its source
	ROLE   Reason = "ROLE"   // a primary where a replica is wanted, or the reverse: no failure, but standby
)

// Reasons is the whole list.
var Reasons = []Reason{L4CON, L4TOUT, L6RSP, L6TOUT, L7RSP, L7STS, L7TOUT, PROC, DNS, LAG, ROLE}

// Failure is a probe's bad news about a backend.
type Failure struct {
	Reason Reason
	Err    error // what happened, for people
}

// Error is the reason and what happened.
func (f *Failure) Error() string { return string(f.Reason) + ": " + f.Err.Error() }

// Unwrap returns what happened.
func (f *Failure) Unwrap() error { return f.Err }

func failf(r Reason, format string, args ...any) *Failure {
	return &Failure{r, fmt.Errorf(format, args...)}
}

// ErrLocal is wrapped by a probe that failed for want of something of this host:
// descriptors, memory, a local port. It says nothing about the backend and moves
// no verdict.
var ErrLocal = errors.New("the probe could not be sent")

// timedOut reports whether err is the probe's own deadline. ETIMEDOUT, the
// kernel's, is the same thing found out by somebody else.
func timedOut(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &ne) && ne.Timeout()
}

// setDeadline puts the deadline of ctx on conn and, when ctx is cancelled, makes
// it now; the caller calls stop before it closes conn.
func setDeadline(ctx context.Context, conn net.Conn) (stop func() bool) {
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t) // fails only on a closed connection
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// asFailure returns what a probe's error says about the backend.
func asFailure(err error) *Failure {
	if f := (*Failure)(nil); errors.As(err, &f) {
		return f
	}
	return answerFailure(err)
}

// answerFailure is why a connection that was established gave no answer.
func answerFailure(err error) *Failure {
	switch {
	case timedOut(err):
		return failf(L7TOUT, "no complete answer within the timeout")
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return failf(L7RSP, "closed before the answer was complete")
	}
	return &Failure{L7RSP, bare(err)}
}

// bare strips what net wraps around an errno: status and log show the address
// already.
func bare(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}
