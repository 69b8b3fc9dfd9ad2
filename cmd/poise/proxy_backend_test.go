package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/poise-lb/poise/internal/loadgen"
)

// A stream is a connection, perhaps over TLS, whose directions end one by one.
type stream struct {
	net.Conn
	tcp *net.TCPConn // what it goes over
}

// CloseWrite ends the direction as each of the two has it: close_notify, then FIN.
func (s stream) CloseWrite() error {
	if c, ok := s.Conn.(*tls.Conn); ok {
		if err := c.CloseWrite(); err != nil {
			return err
		}
	}
	return s.tcp.CloseWrite()
}

// A strictConn knows no end but that of TLS: crypto/tls takes a FIN between two
// records for an orderly one.
type strictConn struct{ *net.TCPConn }

var errNoNotify = errors.New("the end came without close_notify")

func (c strictConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err == io.EOF {
		err = errNoNotify
	}
	return n, err
}

// A bufferedConn is read through a buffer that has been read from before.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c bufferedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// readHeader reads the PROXY header that a connection begins with, by the reference
// implementation, and returns what comes after it.
func readHeader(c net.Conn) (*proxyproto.Header, bufferedConn, error) {
	r := bufio.NewReader(c)
	h, err := proxyproto.Read(r)
	return h, bufferedConn{c, r}, err
}

// A visit is a connection that came to a backend, whole.
type visit struct {
	header *proxyproto.Header // nil if none was expected
	data   string
	err    error // nil = an orderly end
}

// source is who the header says it is.
func (v visit) source() string {
	if v.header == nil || v.header.SourceAddr == nil {
		return ""
	}
	return v.header.SourceAddr.String()
}

// visitors starts a backend that takes what comes to its end, answers "ok" and tells
// of it. With header it expects a PROXY header first.
func visitors(t testing.TB, header bool) (addr string, visits <-chan visit) {
	t.Helper()
	ch := make(chan visit, 1000)
	addr = serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		v, conn := visit{}, net.Conn(c)
		if header {
			h, rest, err := readHeader(c)
			if err != nil {
				ch <- visit{err: err}
				return
			}
			v.header, conn = h, rest
		}
		r := readToEnd(conn)
		v.data, v.err = r.got, r.err
		_, _ = io.WriteString(c, "ok")
		ch <- v
	})
	return addr, ch
}

// newClient is a client on a connection that has begun.
func newClient(c net.Conn) *client { return &client{c, bufio.NewReader(c)} }

// next waits for a visit.
func next(t testing.TB, visits <-chan visit) visit {
	t.Helper()
	select {
	case v := <-visits:
		return v
	case <-time.After(patience):
		t.Fatal("nobody came")
		return visit{}
	}
}

// everyAddr reserves a port of every address: listen there, and connect to one.
func everyAddr(t testing.TB) (listen, connectTo string) {
	t.Helper()
	r, err := loadgen.Reserve("[::]:0")
	if err != nil {
		unavailable(t, "needs IPv6: "+err.Error())
	}
	t.Cleanup(r.Close)
	listen = fmt.Sprintf(":%d", r.Addr().Port())
	return listen, "127.0.0.1" + listen
}

// connectFrom is connect from an address of this host.
func connectFrom(t testing.TB, source, addr string) *net.TCPConn {
	t.Helper()
	c, err := tryFrom(t, source, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tryFrom is connectFrom for somebody who may be reset before connect returns.
func tryFrom(t testing.TB, source, addr string) (*net.TCPConn, error) {
	t.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), c.SetDeadline(time.Now().Add(2 * patience))
}

// say sends pieces with pauses in between, ends the direction, and returns what comes
// back.
func say(t testing.TB, c *net.TCPConn, pause time.Duration, pieces ...string) reading {
	t.Helper()
	defer c.Close()
	for i, p := range pieces {
		if i > 0 && pause > 0 {
			time.Sleep(pause)
		}
		if _, err := io.WriteString(c, p); err != nil {
			return reading{err: err}
		}
	}
	if err := c.CloseWrite(); err != nil {
		return reading{err: err}
	}
	return readToEnd(c)
}

// refused waits for the end of a connection that gets nothing.
func refused(t testing.TB, c net.Conn) {
	t.Helper()
	if r := readToEnd(c); r.got != "" || isTimeout(r.err) {
		t.Errorf("got %q, %v", r.got, r.err)
	}
}

// outcomes waits until so many connections of the service web have ended in a way.
func (p *proc) outcomes(t testing.TB, outcome string, n float64) {
	t.Helper()
	series := `poise_sessions_total{outcome="` + outcome + `",service="web"}`
	eventually(t, outcome, func() bool { return p.Metrics(t)[series] >= n })
	if got := p.Metrics(t)[series]; got != n {
		t.Errorf("%v ended as %s, want %v", got, outcome, n)
	}
}

// logged waits for a line of the access log that contains all of the parts.
func (p *proc) logged(t testing.TB, parts ...string) {
	t.Helper()
	eventually(t, "a line of the log with "+strings.Join(parts, " "), func() bool {
		for line := range strings.Lines(p.Stdout()) {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(line, part)
			}
			if all {
				return true
			}
		}
		return false
	})
}
