package health

import (
	"context"
	"io"
	"net"
)

// Step is one step of an expect check: something to say, or else something to
// wait for.
type Step struct {
	Send   string // these bytes; "" = wait for Expect
	Hex    bool   // Send is written as hex digits
	Expect Pattern
}

// maxAnswer is how much of a backend's answers a check reads in all, be it that
// what it waits for has not come by then.
const maxAnswer = 64 << 10

// expectProber holds a conversation of fixed parts over one connection. What it
// waits for may be anywhere in what the backend sends after the place where the
// step before has found what it waited for.
type expectProber struct {
	dialer
	steps []Step
}

var expectCheck = Check{Word: "expect", New: newExpectProber, Fails: reading}

func newExpectProber(s Spec, network, address string) Prober {
	return &expectProber{s.dialer(network, address), s.Expect}
}

// Probe connects and goes through the steps.
func (p *expectProber) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	return converse(conn, p.steps)
}

func converse(conn net.Conn, steps []Step) error {
	in := &answers{r: conn, left: maxAnswer}
	for _, step := range steps {
		if step.Send != "" {
			if _, err := io.WriteString(conn, step.Send); err != nil {
				return answerFailure(err)
			}
			continue
		}
		if err := in.await(step.Expect); err != nil {
			return err
		}
	}
	return nil
}

// answers is what a backend sends, looked at in order.
type answers struct {
	r      io.Reader
	left   int    // that may still be read
	unseen []byte // read, and after the last match
	buf    [4 << 10]byte
}

// await reads until the pattern is found, can no longer be found, or must be given
// up. An answer that is wrong is told from one that does not come: it is a wrong
// answer too if the backend, after it, leaves the connection open (case O-12).
func (a *answers) await(p Pattern) error {
	m := p.matcher()
	var seen []byte // the beginning of what there was, for people
	note := func(b []byte) { seen = append(seen, b[:min(len(b), excerptBytes+1-len(seen))]...) }
	for {
		n, f := m.feed(a.unseen)
		note(a.unseen)
		if a.unseen = a.unseen[n:]; f == found {
			return nil
		} else if f == impossible {
			return failf(L7RSP, "answered %s, want %s", excerpt(seen), p)
		}
		if a.left == 0 {
			return failf(L7RSP, "answered %s and more, want %s within %d bytes", excerpt(seen), p, maxAnswer)
		}
		got, err := a.r.Read(a.buf[:min(len(a.buf), a.left)])
		a.left -= got
		a.unseen = a.buf[:got]
		switch {
		case got > 0 || err == nil:
		case err == io.EOF && m.end() == found:
			return nil
		case err == io.EOF && len(seen) == 0:
			return failf(L7RSP, "closed without an answer, want %s", p)
		case err == io.EOF:
			return failf(L7RSP, "answered %s and closed, want %s", excerpt(seen), p)
		case timedOut(err) && len(seen) > 0 && !m.begun():
			return failf(L7RSP, "answered %s, want %s", excerpt(seen), p)
		default:
			return answerFailure(err)
		}
	}
}
