package tls

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// A tlsGuest is what a backend with TLS knows of a client that came to it.
type tlsGuest struct {
	serverName, protocol, subject string
	header                        string // who the PROXY header before TLS says it is
}

// tlsNamed starts a backend that ends TLS and behaves as a Named one; it tells of
// every connection whose handshake is over. With header it expects a PROXY header.
func tlsNamed(t testing.TB, name string, config *tls.Config, header bool) (addr string, guests <-chan tlsGuest) {
	t.Helper()
	ch := make(chan tlsGuest, 1000)
	addr = rig.Serve(t, func(tcp *net.TCPConn, _ <-chan struct{}) {
		var g tlsGuest
		conn := net.Conn(tcp)
		if header {
			h, rest, err := rig.ReadHeader(tcp)
			if err != nil {
				return
			}
			g.header, conn = h.SourceAddr.String(), rest
		}
		s := tls.Server(conn, config)
		if s.Handshake() != nil {
			return
		}
		state := s.ConnectionState()
		g.serverName, g.protocol = state.ServerName, state.NegotiatedProtocol
		if len(state.PeerCertificates) > 0 {
			g.subject = state.PeerCertificates[0].Subject.CommonName
		}
		ch <- g
		r := rig.NewClient(s).Reader
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			fmt.Fprintf(s, "%s\n%s", name, line)
		}
		_ = s.CloseWrite()
		_, _ = io.Copy(io.Discard, tcp)
	})
	return addr, ch
}

// A backend has to prove who it is. One that cannot gets no client, and another is
// asked.
func TestTLSBackendVerified(t *testing.T) {
	t.Parallel()
	ca, foreign := rig.NewAuthority(t), rig.NewAuthority(t)
	fake, fakes := tlsNamed(t, "fake", rig.ServerConfig(foreign.Issue(t, "db.test")), false)
	misnamed, misnameds := tlsNamed(t, "misnamed", rig.ServerConfig(ca.Issue(t, "other.test")), false)
	plain := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) { _, _ = io.Copy(c, c) })
	good, goods := tlsNamed(t, "good", rig.ServerConfig(ca.Issue(t, "db.test")), false)
	listen := rig.Addr(t)
	backends := []string{rig.Member("fake", fake), rig.Member("misnamed", misnamed), rig.Member("plain", plain), rig.Member("good", good)}
	yaml := func(tls string) string {
		return "log: {access_format: json}\n" + rig.WebConfig(listen, "retries: 5",
			"balance: first, passive: {failures: 0}, check: {type: none}, tls: "+tls, backends...)
	}
	p := rig.Start(t, yaml("{server_name: db.test, ca: "+ca.File+"}"))
	const clients = 5
	for range clients {
		if name, err := rig.Ask(listen); name != "good" || err != nil {
			t.Errorf("served by %q, %v", name, err)
		}
		if g := <-goods; g.serverName != "db.test" {
			t.Errorf("%+v", g)
		}
	}
	p.WantOutcomes(t, "ok", clients)
	m := p.Metrics(t)
	for _, name := range []string{"fake", "misnamed", "plain"} {
		if n := m[fmt.Sprintf(`poise_backend_connect_failures_total{backend=%q,pool="web",reason="tls"}`, name)]; n != clients {
			t.Errorf("%s: %v failures", name, n)
		}
	}
	p.WantLogged(t, `"backend":"good"`, `"retries":3`)

	// The authorities of the system know none of them: verification is on unless told
	// otherwise.
	p.MustReload(t, yaml("{server_name: db.test}"))
	if name, err := rig.Ask(listen); err == nil {
		t.Errorf("served by %s, which is not trusted", name)
	}
	p.WantOutcomes(t, "connect_failed", 1)
	if len(fakes)+len(misnameds)+len(goods) > 0 {
		t.Error("a handshake has succeeded")
	}
	p.MustReload(t, yaml("{server_name: db.test, verify: false}"))
	if name, err := rig.Ask(listen); name != "fake" || err != nil {
		t.Errorf("served by %q, %v", name, err)
	}
}

// What a backend gets to know: the name that is asked for, protocols, our certificate,
// and the PROXY header before all of it.
func TestTLSBackendGuest(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	own := ca.Issue(t, "balancer")
	config := rig.ServerConfig(ca.Issue(t, "db.test", "127.0.0.1"))
	config.ClientAuth, config.ClientCAs, config.NextProtos = tls.RequireAndVerifyClientCert, ca.Pool, []string{"mqtt"}
	address, guests := tlsNamed(t, "db1", config, true)
	listen := rig.Addr(t)
	yaml := func(keys string) string {
		return rig.WebConfig(listen, "proxy_protocol: {accept: any, trusted: [127.0.0.1]}", fmt.Sprintf("send_proxy: v2, passive: {failures: 0}, check: {type: none}, tls: {ca: %s%s}", ca.File, keys), rig.Member("db1", address))
	}
	ours := fmt.Sprintf(", cert: %s, key: %s", own.Cert, own.Key)
	p := rig.Start(t, yaml(", server_name: db.test, alpn: [x, mqtt]"+ours))
	once := func() error {
		c := rig.NewClient(rig.Connect(t, listen))
		defer c.Close()
		if _, err := io.WriteString(c, rig.ProxyV2); err != nil {
			t.Fatal(err)
		}
		_, err := c.Ask()
		return err
	}
	if err := once(); err != nil {
		t.Fatal(err)
	}
	if g := <-guests; g != (tlsGuest{"db.test", "mqtt", "balancer", "192.0.2.7:40000"}) {
		t.Errorf("%+v", g)
	}
	p.MustReload(t, yaml(ours)) // the address is in the certificate
	if err := once(); err != nil {
		t.Fatal(err)
	}
	if g := <-guests; g != (tlsGuest{"", "", "balancer", "192.0.2.7:40000"}) {
		t.Errorf("%+v", g)
	}
	p.MustReload(t, yaml(", server_name: db.test")) // who is there?
	if err := once(); err == nil {
		t.Error("served without a certificate")
	}
	if len(guests) > 0 {
		t.Error("a handshake has succeeded without a certificate")
	}
	// Our certificate is renewed like any other.
	p.MustReload(t, yaml(", server_name: db.test"+ours))
	renewed := ca.Issue(t, "balancer 2")
	rig.ReplaceFile(t, own.Cert, renewed.Cert)
	rig.Eventually(t, "the new certificate", func() bool {
		if err := once(); err != nil {
			t.Fatal(err)
		}
		return (<-guests).subject == "balancer 2"
	})
}

// TLS on both sides is two connections: what each asked for is its own matter.
func TestTLSBothSides(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	address, guests := tlsNamed(t, "db1", rig.ServerConfig(ca.Issue(t, "inner.test")), true)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, ca.Issue(t, "outer.test").ServiceTLS(),
		"send_proxy: v2, check: {type: none}, tls: {server_name: inner.test, ca: "+ca.File+"}", rig.Member("db1", address)))
	for range 20 {
		s := rig.MustDialTLS(t, listen, ca.ClientConfig("outer.test"))
		if id := s.ConnectionState().CurveID; id != tls.X25519MLKEM768 {
			t.Errorf("the key exchange is %v, which does not outlive quantum computers", id)
		}
		c := rig.NewClient(s)
		for range 10 {
			c.MustAsk(t)
		}
		if g := <-guests; g != (tlsGuest{serverName: "inner.test", header: s.LocalAddr().String()}) {
			t.Errorf("%+v", g)
		}
		s.Close()
	}
	p.WantOutcomes(t, "ok", 20)
	if strings.Contains(p.Stderr(), "WARN") {
		t.Error("there are warnings")
	}
}

// A backend that takes connections and does not go on with TLS fails in the time of a
// connect.
func TestTLSBackendSilent(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	silent := rig.Serve(t, func(_ *net.TCPConn, done <-chan struct{}) { <-done })
	good, _ := tlsNamed(t, "good", rig.ServerConfig(ca.Issue(t, "db.test")), false)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "timeouts: {connect: 300ms}", "balance: first, passive: {failures: 0}, check: {type: none}, tls: {server_name: db.test, ca: "+ca.File+"}",
		rig.Member("silent", silent), rig.Member("good", good)))
	for range 3 {
		if name, err := rig.Ask(listen); name != "good" || err != nil {
			t.Errorf("served by %q, %v", name, err)
		}
	}
	if n := p.Metrics(t)[`poise_backend_connect_failures_total{backend="silent",pool="web",reason="timeout"}`]; n != 3 {
		t.Errorf("%v timeouts are counted", n)
	}
}

// TLS goes over unix sockets like over any other, in both directions and to both ends.
func TestTLSUnixBackend(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	own := ca.Issue(t, "db.test")
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	rig.ServeOn(t, l, func(c net.Conn, _ <-chan struct{}) {
		s := tls.Server(c, rig.ServerConfig(own))
		b, err := io.ReadAll(s) // to the client's end
		if err == nil {
			_, _ = s.Write(b)
			_ = s.CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		}
	})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, own.ServiceTLS(), "check: {type: none}, tls: {server_name: db.test, ca: "+ca.File+"}", rig.Member("db1", "unix:"+path)))
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	for range 20 {
		tcp := rig.Connect(t, listen)
		c := rig.Stream{Conn: tls.Client(rig.StrictConn{TCPConn: tcp}, ca.ClientConfig("db.test")), TCP: tcp}
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if r := rig.ReadToEnd(c); r.Got != string(sent) || r.Err != nil {
			t.Errorf("%d bytes came back, %v", len(r.Got), r.Err)
		}
		tcp.Close()
	}
	p.WantOutcomes(t, "ok", 20)
}
