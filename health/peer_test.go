package health

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority is a certificate authority of a test.
type testAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate in PEM
}

func newAuthority(t *testing.T) *testAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a := &testAuthority{key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate for names and addresses that ends after a while.
func (a *testAuthority) issue(t *testing.T, expires time.Time, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test backend"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// overTLS runs script on the inside of a TLS connection.
func overTLS(cfg *tls.Config, script func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		secure := tls.Server(conn, cfg)
		if secure.Handshake() == nil {
			script(secure)
			_ = secure.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, conn)
	}
}

// untilEnd is a script that reads to the end.
func untilEnd(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// speak makes a script of lines: "<" sends what follows, ">" waits for exactly
// what follows, "~" pauses, during which nothing may come, and "." waits for the
// end, which must not be a reset. What goes wrong fails the test.
func speak(t *testing.T, lines ...string) func(net.Conn) {
	return func(conn net.Conn) {
		for _, line := range lines {
			switch rest := line[1:]; line[0] {
			case '<':
				if _, err := io.WriteString(conn, rest); err != nil {
					return
				}
			case '>':
				got := make([]byte, len(rest))
				if n, err := io.ReadFull(conn, got); err != nil || string(got) != rest {
					t.Errorf("the probe sends %q (%v), want %q", got[:n], err, rest)
					return
				}
			case '.':
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("the probe ends with %v", err)
				}
			case '~':
				d, _ := time.ParseDuration(rest)
				// Nothing may arrive meanwhile.
				_ = conn.SetReadDeadline(time.Now().Add(d))
				var early bytes.Buffer
				if n, _ := io.Copy(&early, conn); n > 0 {
					t.Errorf("the probe sends %q early", early.String())
				}
				_ = conn.SetReadDeadline(time.Time{})
			}
		}
	}
}

// want checks the outcome of a probe: a reason, or "" for none, and words of the
// error.
func wantOutcome(t *testing.T, err error, reason Reason, words string) {
	t.Helper()
	if reason == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	wantReason(t, err, reason)
	if !strings.Contains(err.Error(), words) {
		t.Errorf("%q does not say %q", err, words)
	}
}

// flat runs 100 probes and sees that no descriptor is left over and that
// connections do not pile up. The test must not be parallel.
func (s *scripted) flat(t *testing.T, spec Spec) {
	t.Helper()
	p := spec.Prober(s.network, s.address)
	before := 0
	for i := range 110 {
		if i == 10 {
			before = openDescriptors(t) // one script may be at its end
		}
		if err := probeOnce(p, longTimeout); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return s.open.Load() == 0 })
	eventually(t, func() bool { return openDescriptors(t) <= before }) // a script's own goes a moment later
	// A script may end some time after its probe.
	if n := s.openMax.Load(); n > 5 {
		t.Errorf("%s: %d connections at once", spec.Type, n)
	}
}

func contextOf(timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), timeout)
}

// tlsFor is of a backend at 127.0.0.1 with a certificate of a.
func tlsFor(t *testing.T, a *testAuthority) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{a.issue(t, time.Now().Add(time.Hour), "127.0.0.1")}}
}
