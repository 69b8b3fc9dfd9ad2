package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// An authority issues certificates for the length of a test.
type authority struct {
	file string // its own certificate
	pool *x509.CertPool
	dir  string // where files go
	cert *x509.Certificate
	key  crypto.Signer
	last int64 // serial number
}

// A leaf is a certificate and its key, in files and ready for crypto/tls.
type leaf struct {
	cert, key string // files
	tls.Certificate
}

// testKey and testRSAKey are the keys of all that is issued: new ones take time and
// prove nothing.
var (
	testKey = sync.OnceValue(func() crypto.Signer {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		return k
	})
	testRSAKey = sync.OnceValue(func() crypto.Signer {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return k
	})
)

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{dir: t.TempDir(), key: key, last: 1, pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	a.file = filepath.Join(a.dir, "ca.pem")
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue makes a certificate with an ECDSA key for names and IP addresses; the first
// is its common name.
func (a *authority) issue(t testing.TB, names ...string) leaf {
	t.Helper()
	return a.issueFor(t, testKey(), func(*x509.Certificate) {}, names...)
}

// issueFor is issue for a key; change has the last word.
func (a *authority) issueFor(t testing.TB, key crypto.Signer, change func(*x509.Certificate), names ...string) leaf {
	t.Helper()
	a.last++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.last),
		Subject:      pkix.Name{CommonName: names[0], Organization: []string{"Poise"}},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(a.dir, fmt.Sprint(a.last))
	l := leaf{cert: base + ".crt", key: base + ".key"}
	writePEM(t, l.cert, "CERTIFICATE", der)
	writePEM(t, l.key, "PRIVATE KEY", pkcs8)
	if l.Certificate, err = tls.LoadX509KeyPair(l.cert, l.key); err != nil {
		t.Fatal(err)
	}
	return l
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serial tells certificates of one authority from each other.
func (l leaf) serial() int64 { return l.Leaf.SerialNumber.Int64() }

// yaml is the leaf as an item of tls.certificates.
func (l leaf) yaml() string { return fmt.Sprintf("{cert: %s, key: %s}", l.cert, l.key) }

// ends is the key tls of a service that shows the leaf; more is further keys.
func (l leaf) ends(more ...string) string {
	s := "tls: {certificates: [" + l.yaml() + "]"
	for _, m := range more {
		s += ", " + m
	}
	return s + "}"
}

// asks is the configuration of a client that trusts the authority only.
func (a *authority) asks(name string) *tls.Config {
	return &tls.Config{RootCAs: a.pool, ServerName: name}
}

// shows is the configuration of a server with these certificates.
func shows(l ...leaf) *tls.Config {
	c := &tls.Config{}
	for _, l := range l {
		c.Certificates = append(c.Certificates, l.Certificate)
	}
	return c
}

// dialTLS connects a client over TLS for the length of the test, at most.
func dialTLS(t testing.TB, addr string, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	c := tls.Client(connect(t, addr), config)
	if err := c.Handshake(); err != nil {
		c.NetConn().Close()
		return nil, err
	}
	return c, nil
}

func mustDialTLS(t testing.TB, addr string, config *tls.Config) *tls.Conn {
	t.Helper()
	c, err := dialTLS(t, addr, config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shown is the serial number of the certificate that a new connection is shown.
func shown(t testing.TB, addr string, config *tls.Config) (int64, error) {
	t.Helper()
	c, err := dialTLS(t, addr, config)
	if err != nil {
		return 0, err
	}
	defer c.NetConn().Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}
