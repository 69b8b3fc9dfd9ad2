package tcp_test

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/tcp"
)

// eachMode runs a test in every mode, at the same time.
func eachMode(t *testing.T, test func(*testing.T, mode)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			test(t, m)
		})
	}
}

// O-01: a client that has said everything gets an answer that is late, whether it
// ends its direction in TLS only or its socket's too.
func TestClientEndsFirst(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		asked := make(chan string, 1)
		proceed := make(chan struct{})
		answer := bytes.Repeat([]byte("R"), 204_800)
		p := m.through(t, func(e end) {
			question, err := io.ReadAll(e)
			if err != nil {
				t.Errorf("the backend's end: %v", err)
			}
			asked <- string(question)
			<-proceed
			e.Write(answer)
		})
		for _, fin := range []bool{false, true} {
			c := m.client(t, p.dial())
			c.Write([]byte("PING\n"))
			c.CloseWrite()
			if fin {
				raw(c).CloseWrite()
			}
			if got := <-asked; got != "PING\n" {
				t.Errorf("the backend got %q", got)
			}
			time.Sleep(50 * time.Millisecond)
			proceed <- struct{}{}
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, answer) {
				t.Errorf("FIN %v: %d bytes, %v", fin, len(got), err)
			}
			c.Close()
		}
		for _, s := range p.ended(2) {
			if s.Outcome != l4.OK || s.BytesOut != uint64(len(answer)) && !m.sni {
				t.Errorf("%v with %d bytes out", s.Outcome, s.BytesOut)
			}
		}
	})
}

// O-01, mirrored: a backend that has ended its direction gets all that comes later.
func TestBackendEndsFirst(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		upload := noise(1<<20 + 1)
		got := make(chan []byte, 1)
		p := m.through(t, func(e end) {
			e.Write([]byte("0123456789"))
			e.CloseWrite()
			b, err := io.ReadAll(e)
			if err != nil {
				t.Errorf("the backend's end: %v", err)
			}
			got <- b
		})
		c := m.client(t, p.dial())
		if b, err := io.ReadAll(c); err != nil || string(b) != "0123456789" {
			t.Fatalf("the client got %q, %v", b, err)
		}
		time.Sleep(20 * time.Millisecond)
		if n, err := c.Write(upload); err != nil {
			t.Errorf("%d bytes went out: %v", n, err)
		}
		c.CloseWrite()
		if b := <-got; !bytes.Equal(b, upload) {
			t.Errorf("the backend got %d bytes", len(b))
		}
		c.Close()
		p.outcome(l4.OK)
	})
}

// O-03: a reset of the client is one for the backend.
func TestClientResets(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		came, ended := make(chan struct{}), make(chan error, 1)
		p := m.through(t, func(e end) {
			io.ReadFull(e, make([]byte, 5))
			close(came)
			_, err := io.Copy(io.Discard, e)
			ended <- err
		})
		c := m.client(t, p.dial())
		c.Write([]byte("12345"))
		<-came
		reset(raw(c))
		if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the backend saw %v", err)
		}
		p.outcome(l4.ClientReset)
	})
}

// O-03: a reset of the backend is one for the client, after what came before it.
func TestBackendResets(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		proceed := make(chan struct{})
		p := m.through(t, func(e end) {
			io.ReadFull(e, make([]byte, 1))
			e.Write([]byte("12345"))
			<-proceed
			reset(raw(e))
		})
		c := m.client(t, p.dial())
		c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		close(proceed)
		if n, err := io.Copy(io.Discard, c); n != 0 || !isReset(err) {
			t.Errorf("the client got %d bytes, then %v", n, err)
		}
		p.outcome(l4.BackendReset)
	})
}

// Control: after an orderly end nobody is reset, and it is an end in TLS too.
func TestOrderlyEnd(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		p := m.through(t, func(e end) {
			io.ReadFull(e, make([]byte, 1))
			e.Write([]byte("12345"))
			finish(e)
			io.Copy(io.Discard, e)
		})
		c := m.client(t, p.dial())
		c.Write([]byte("x"))
		if b, err := io.ReadAll(c); err != nil || string(b) != "12345" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
		p.outcome(l4.OK)
	})
}

// O-02: what is left of a connection has a limit for making no progress.
func TestSilentHalf(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		stop := make(chan struct{})
		came := make(chan struct{})
		p := m.through(t, func(e end) {
			io.ReadFull(e, make([]byte, 1))
			close(came)
			<-stop
		}, func(r *tcp.Route) { r.Spec.HalfClose = 300 * time.Millisecond })
		defer close(stop)
		c := m.client(t, p.dial())
		c.Write([]byte("x"))
		<-came
		finish(c)
		p.outcome(l4.HalfCloseTimeout)
	})
}

// finish ends the direction of e in TLS and in TCP.
func finish(e end) {
	e.CloseWrite()
	raw(e).CloseWrite()
}
