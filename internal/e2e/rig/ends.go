package rig

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// A Reading is what came from a connection until its end, and how that was.
type Reading struct {
	Got string
	Err error
}

// ReadToEnd reads until the end, or an error.
func ReadToEnd(c net.Conn) Reading {
	got, err := io.ReadAll(c)
	return Reading{string(got), err}
}

// Reset reports whether the end was a reset.
func (r Reading) Reset() bool { return errors.Is(r.Err, syscall.ECONNRESET) }

// IsTimeout reports whether a deadline has passed.
func IsTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// WantRefused waits for the end of a connection that gets nothing.
func WantRefused(t testing.TB, c net.Conn) {
	t.Helper()
	if r := ReadToEnd(c); r.Got != "" || IsTimeout(r.Err) {
		t.Errorf("got %q, %v", r.Got, r.Err)
	}
}

// IsBroken reports whether err is that of a connection whose server has died.
func IsBroken(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}

// Reset closes c in a way that its peer sees as a reset.
func Reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// WantClosed waits for the end of the connections.
func WantClosed(t *testing.T, list []*Client) {
	t.Helper()
	for _, c := range list {
		if err := c.SetReadDeadline(time.Now().Add(Patience)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Reader.ReadByte()
		if err == nil || IsTimeout(err) {
			t.Fatalf("still open: %v", err)
		}
	}
}
