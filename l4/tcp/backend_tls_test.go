package tcp_test

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/tcp"
)

// secureEcho is a TLS backend that says its name, and then what it gets.
func secureEcho(t *testing.T, name string, config *tls.Config) balance.BackendSpec {
	return named(serve(t, func(c *net.TCPConn) {
		e := tls.Server(c, config)
		if e.Handshake() != nil {
			return
		}
		io.WriteString(e, name)
		io.Copy(e, e)
		e.Close()
	}), name)
}

// A backend that is not who it should be, or no TLS at all, is left for another
// one; if there is none the client learns nothing but the end.
func TestBackendTLSFails(t *testing.T) {
	other := must(tls.X509KeyPair(creds().crt, creds().key))
	good := &tls.Config{Certificates: []tls.Certificate{creds().pair}}
	for what, c := range map[string]struct {
		backend func(t *testing.T) balance.BackendSpec
		spec    func(*cert.ClientSpec)
	}{
		"another name":      {func(t *testing.T) balance.BackendSpec { return secureEcho(t, "bad", good) }, func(s *cert.ClientSpec) { s.ServerName = "c.test" }},
		"unknown authority": {func(t *testing.T) balance.BackendSpec { return secureEcho(t, "bad", good) }, func(s *cert.ClientSpec) { s.CA = "" }},
		"old version": {func(t *testing.T) balance.BackendSpec {
			return secureEcho(t, "bad", &tls.Config{Certificates: []tls.Certificate{other}, MaxVersion: tls.VersionTLS12})
		}, func(s *cert.ClientSpec) { s.MinVersion = tls.VersionTLS13 }},
		"plain text": {func(t *testing.T) balance.BackendSpec {
			return serve(t, func(c *net.TCPConn) { c.Write([]byte("220 ready\r\n")) })
		}, nil},
		"closes at once": {func(t *testing.T) balance.BackendSpec { return serve(t, func(*net.TCPConn) {}) }, nil},
		"resets at once": {func(t *testing.T) balance.BackendSpec { return serve(t, reset) }, nil},
	} {
		t.Run(what, func(t *testing.T) {
			bad := named(c.backend(t), "bad")
			ca, pair := creds().write(t)
			spec := cert.ClientSpec{ServerName: "a.test", CA: ca, Cert: pair.Cert, Key: pair.Key, Verify: true}
			if c.spec != nil {
				c.spec(&spec)
			}
			p := start(t, one(bad), func(r *tcp.Route) { r.To.TLS = must(cert.LoadClient(spec)) })
			if err := p.refused(); !isReset(err) {
				t.Errorf("the client sees %v", err)
			}
			if s := p.outcome(l4.ConnectFailed); s.By != l4.Backend || s.Connect != l4.Unreached {
				t.Errorf("%+v", s)
			}
			if n := p.pool.Backends()[0].Stats.ConnectFailures[l4.ConnectTLS].Load(); n != 1 {
				t.Errorf("%d failures of TLS are counted", n)
			}
			if c.spec != nil {
				return // a better one would fail too
			}
			fine := secureEcho(t, "good", good)
			p.firstIs(bad, fine)
			e := p.dial()
			buf := make([]byte, 4)
			if _, err := io.ReadFull(e, buf); err != nil || string(buf) != "good" {
				t.Errorf("%q, %v", buf, err)
			}
			e.Close()
			if s := p.ended(2)[1]; s.Outcome != l4.OK || s.Retries != 1 || s.Connect == l4.Unreached {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A backend that says nothing to a ClientHello has as long as one that does not
// answer a connect.
func TestBackendSilentInHandshake(t *testing.T) {
	for _, ask := range []bool{false, true} {
		stop := make(chan struct{})
		p := start(t, one(serve(t, func(*net.TCPConn) { <-stop })), func(r *tcp.Route) {
			r.To.TLS, r.To.StartTLS = backendTLS(t), ask
			r.Spec.Connect = 300 * time.Millisecond
		})
		c := p.dial()
		io.ReadAll(c)
		close(stop)
		p.outcome(l4.ConnectTimeout)
	}
}

// Without verification any certificate will do; a certificate of ours is shown.
func TestBackendTLSUnverified(t *testing.T) {
	shown := make(chan string, 1)
	b := serve(t, func(c *net.TCPConn) {
		e := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{creds().pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: creds().pool})
		if err := e.Handshake(); err != nil {
			t.Error(err)
			return
		}
		shown <- e.ConnectionState().PeerCertificates[0].Subject.CommonName
		io.Copy(e, e)
	})
	_, pair := creds().write(t)
	p := start(t, one(b), func(r *tcp.Route) {
		r.To.TLS = must(cert.LoadClient(cert.ClientSpec{Cert: pair.Cert, Key: pair.Key}))
	})
	c := p.dial()
	if err := ping(c); err != nil {
		t.Error(err)
	}
	if name := <-shown; name != "somebody" {
		t.Errorf("shown the certificate of %q", name)
	}
}

// TLS over a unix socket, whose reads end where a message ended.
func TestBackendTLSOverUnixSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	data := noise(1 << 20)
	b := serveOn(t, l, func(c net.Conn) {
		e := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{creds().pair}})
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 700)
			if _, err := e.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		e.Close()
	})
	p := start(t, one(b), func(r *tcp.Route) { r.To.TLS = backendTLS(t) })
	for range 3 {
		c := p.dial()
		if got, err := io.ReadAll(c); err != nil || string(got) != string(data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		c.Close()
	}
}

// A backend that resets in the middle of a record is no end of the stream.
func TestBackendTLSBroken(t *testing.T) {
	connected := make(chan struct{}, 1)
	b := serve(t, func(c *net.TCPConn) {
		e := tlsServer(c)
		e.Write([]byte("12345"))
		<-connected // else the client's dial may fail
		c.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
	})
	for _, front := range []bool{false, true} {
		m := mode{front: front, back: true}
		p := start(t, one(b), m.apply(t))
		c := m.client(t, p.dial())
		if front {
			c.(*tls.Conn).Handshake()
		}
		connected <- struct{}{}
		if got, err := io.ReadAll(c); string(got) != "12345" || !isReset(err) {
			t.Errorf("front %v: %q, %v", front, got, err)
		}
		p.outcome(l4.BackendReset)
	}
}
