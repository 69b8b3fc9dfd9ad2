package rig

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// A Stream is a connection, perhaps over TLS, whose directions end one by one.
type Stream struct {
	net.Conn
	TCP *net.TCPConn // what it goes over
}

// CloseWrite ends the direction as each of the two has it: close_notify, then FIN.
func (s Stream) CloseWrite() error {
	if c, ok := s.Conn.(*tls.Conn); ok {
		if err := c.CloseWrite(); err != nil {
			return err
		}
	}
	return s.TCP.CloseWrite()
}

// A StrictConn knows no end but that of TLS: crypto/tls takes a FIN between two
// records for an orderly one.
type StrictConn struct{ *net.TCPConn }

var errNoNotify = errors.New("the end came without close_notify")

func (c StrictConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err == io.EOF {
		err = errNoNotify
	}
	return n, err
}

// A BufferedConn is read through a buffer that has been read from before.
type BufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c BufferedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// ReadHeader reads the PROXY header that a connection begins with, by the reference
// implementation, and returns what comes after it.
func ReadHeader(c net.Conn) (*proxyproto.Header, BufferedConn, error) {
	r := bufio.NewReader(c)
	h, err := proxyproto.Read(r)
	return h, BufferedConn{c, r}, err
}

// A Visit is a connection that came to a backend, whole.
type Visit struct {
	Header *proxyproto.Header // nil if none was expected
	Data   string
	Err    error // nil = an orderly end
}

// Source is the client's address in the header.
func (v Visit) Source() string {
	if v.Header == nil || v.Header.SourceAddr == nil {
		return ""
	}
	return v.Header.SourceAddr.String()
}

// Visitors starts a backend that takes what comes to its end, answers "ok" and tells
// of it. With header it expects a PROXY header first.
func Visitors(t testing.TB, header bool) (addr string, visits <-chan Visit) {
	t.Helper()
	ch := make(chan Visit, 1000)
	addr = Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		v, conn := Visit{}, net.Conn(c)
		if header {
			h, rest, err := ReadHeader(c)
			if err != nil {
				ch <- Visit{Err: err}
				return
			}
			v.Header, conn = h, rest
		}
		r := ReadToEnd(conn)
		v.Data, v.Err = r.Got, r.Err
		_, _ = io.WriteString(c, "ok")
		ch <- v
	})
	return addr, ch
}

// NextVisit waits for a visit.
func NextVisit(t testing.TB, visits <-chan Visit) Visit {
	t.Helper()
	select {
	case v := <-visits:
		return v
	case <-time.After(Patience):
		t.Fatal("no connection came to the backend")
		return Visit{}
	}
}

// WantOutcomes waits until so many connections of the service web have ended in a way.
func (p *Proc) WantOutcomes(t testing.TB, outcome string, n float64) {
	t.Helper()
	series := `poise_sessions_total{outcome="` + outcome + `",service="web"}`
	Eventually(t, outcome, func() bool { return p.Metrics(t)[series] >= n })
	if got := p.Metrics(t)[series]; got != n {
		t.Errorf("%v ended as %s, want %v", got, outcome, n)
	}
}

// WantLogged waits for a line of the access log that contains all of the parts.
func (p *Proc) WantLogged(t testing.TB, parts ...string) {
	t.Helper()
	Eventually(t, "a line of the log with "+strings.Join(parts, " "), func() bool {
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

// Headers of the cases: the client is 192.0.2.7:40000, or as the text says.
const (
	ProxySign = "\r\n\r\n\x00\r\nQUIT\n"
	ProxyAddr = "\xc0\x00\x02\x07\xc6\x33\x64\x09\x9c\x40\x01\xbb"
	ProxyV2   = ProxySign + "\x21\x11\x00\x0c" + ProxyAddr
)
