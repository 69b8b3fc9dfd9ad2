package tcp_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

const (
	sslRequest = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	gssRequest = "\x00\x00\x00\x08\x04\xd2\x16\x30"
	pgStart    = "\x00\x00\x00\x08\x00\x03\x00\x00"
)

// postgres is a server that answers a request for TLS, and then echoes a greeting.
func postgres(t *testing.T, name, answer string) balance.BackendSpec {
	return named(serve(t, func(c *net.TCPConn) {
		request := make([]byte, len(sslRequest))
		if _, err := io.ReadFull(c, request); err != nil {
			return
		}
		var e end = c
		if string(request) == sslRequest {
			c.Write([]byte(answer))
			if answer != "S" {
				io.Copy(io.Discard, c)
				return
			}
			e = tlsServer(c)
			if _, err := io.ReadFull(e, request); err != nil {
				return
			}
		}
		e.Write(append([]byte(name+" "), request...))
		finish(e)
		io.Copy(io.Discard, e)
	}), name)
}

// startTLS asks for TLS as a client of PostgreSQL does, after the given requests that
// are denied, and returns what the server says to a start.
func startTLS(t *testing.T, c *net.TCPConn, denied ...string) (string, error) {
	t.Helper()
	answer := make([]byte, 1)
	for _, r := range append(denied, sslRequest) {
		deliver(t, c, r[:3], r[3:])
		if _, err := io.ReadFull(c, answer); err != nil {
			return "", err
		}
		if want := "N"; r == sslRequest && answer[0] != 'S' || r != sslRequest && string(answer) != want {
			t.Errorf("answer %q to %q", answer, r)
		}
	}
	e := tls.Client(c, clientConfig())
	defer e.Close()
	e.Write([]byte(pgStart))
	b, err := io.ReadAll(e)
	return string(b), err
}

// An SSLRequest is answered and asked again of the server, whoever ends the TLS, and
// with a PROXY header before all of it.
func TestStartTLS(t *testing.T) {
	for what, c := range map[string]struct {
		front, back, ask bool
	}{
		"passed through":       {},
		"front":                {front: true},
		"front and back":       {front: true, back: true, ask: true},
		"front, direct behind": {front: true, back: true},
	} {
		t.Run(what, func(t *testing.T) {
			b := postgres(t, "pg", "S")
			if c.back && !c.ask {
				b = serve(t, func(c *net.TCPConn) {
					e := tlsServer(c)
					start := make([]byte, len(pgStart))
					io.ReadFull(e, start)
					e.Write(append([]byte("pg "), start...))
				})
			}
			p := start(t, one(b), func(r *tcp.Route) {
				r.Spec.FirstBytes, r.Spec.MaxHandshakes, r.Spec.StartTLS = patience, 10, true
				if c.back {
					r.To.TLS, r.To.StartTLS = backendTLS(t), c.ask
				}
				if c.front {
					r.TLS = serverTLS(t, nil)
				} else {
					r.SNI, r.To = tcp.NewSNI([]tcp.SNIRule{{Name: "a.test", To: r.To}}), nil
				}
			})
			for _, denied := range [][]string{nil, {gssRequest}} {
				if got, err := startTLS(t, p.dial(), denied...); got != "pg "+pgStart || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
}

// Behind StartTLS a client may also begin with TLS at once.
func TestStartTLSLeftOut(t *testing.T) {
	p := start(t, one(postgres(t, "pg", "S")), func(r *tcp.Route) {
		r.Spec.FirstBytes, r.Spec.MaxHandshakes, r.Spec.StartTLS = patience, 10, true
		r.TLS = serverTLS(t, nil)
	})
	e := tls.Client(p.dial(), clientConfig())
	e.Write([]byte(pgStart))
	if b, err := io.ReadAll(e); string(b) != "pg "+pgStart || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	e.Close()
}

// What is put in behind a request, to be taken for what comes after the handshake,
// ends the connection; and so does what is no TLS after it.
func TestStartTLSInjected(t *testing.T) {
	b := serve(t, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		t.Errorf("a backend got %d bytes", n)
	})
	for what, pieces := range map[string][]string{
		"glued":         {sslRequest + "x"},
		"glued hello":   {sslRequest + string(hello(t, "a.test"))},
		"glued to gss":  {gssRequest + sslRequest},
		"no TLS at all": {sslRequest, "plain text"},
	} {
		t.Run(what, func(t *testing.T) {
			p := start(t, one(b), func(r *tcp.Route) {
				r.Spec.FirstBytes, r.Spec.StartTLS = patience, true
				r.SNI = tcp.NewSNI([]tcp.SNIRule{{Name: "a.test", To: r.To}})
				r.SNI.Default, r.SNI.NotTLS, r.SNI.NoHello = r.To, r.To, r.To
				r.To = nil
			})
			c := p.dial()
			c.Write([]byte(pieces[0]))
			if len(pieces) > 1 {
				io.ReadFull(c, make([]byte, 1))
				c.Write([]byte(pieces[1]))
			}
			if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !isReset(err) {
				t.Errorf("%q, %v", b, err)
			}
			p.outcome(l4.BadTLSHello)
		})
	}
}

// A server that says no, or more than it may, is left for another one.
func TestStartTLSRefusedByBackend(t *testing.T) {
	for _, answer := range []string{"N", "E", "Sx", "SSSSSSSS", ""} {
		for _, front := range []bool{true, false} {
			bad, good := postgres(t, "bad", answer), postgres(t, "good", "S")
			if answer == "" {
				bad = named(serve(t, func(*net.TCPConn) {}), "bad") // closes at once
			}
			p := start(t, []balance.BackendSpec{bad, good}, func(r *tcp.Route) {
				r.Spec.FirstBytes, r.Spec.MaxHandshakes, r.Spec.StartTLS = patience, 10, true
				if front {
					r.TLS = serverTLS(t, nil)
					r.To.TLS, r.To.StartTLS = backendTLS(t), true
				} else {
					r.SNI, r.To = tcp.NewSNI([]tcp.SNIRule{{Name: "a.test", To: r.To}}), nil
				}
			})
			p.firstIs(bad, good)
			for range 2 {
				if got, err := startTLS(t, p.dial()); got != "good "+pgStart || err != nil {
					t.Errorf("%q: %q, %v", answer, got, err)
				}
			}
			p.ended(2)
			if b := p.pool.Backends()[0]; b.Stats.ConnectFailures[l4.ConnectTLS].Load() != 2 {
				t.Errorf("%q: %d failures are counted", answer, b.Stats.ConnectFailures[l4.ConnectTLS].Load())
			}
		}
	}
}

// The PROXY header comes before the request.
func TestStartTLSBehindProxyHeader(t *testing.T) {
	sent := make(chan string, 1)
	b := serve(t, func(c *net.TCPConn) {
		if _, err := readHeader(c); err != nil {
			t.Error(err)
		}
		request := make([]byte, len(sslRequest))
		io.ReadFull(c, request)
		sent <- string(request)
	})
	p := start(t, one(b), func(r *tcp.Route) {
		r.Spec.Retries = 0
		r.To.TLS, r.To.StartTLS, r.To.Proxy.Version = backendTLS(t), true, 2
	}, func(r *tcp.Route) { r.Spec.Proxy.Accept = wire.AcceptAny }) // of nobody
	p.refused()
	if s := <-sent; s != sslRequest {
		t.Errorf("%q", s)
	}
	p.outcome(l4.ConnectFailed)
}
