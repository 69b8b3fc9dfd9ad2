package rig

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

// An Authority issues certificates for the length of a test.
type Authority struct {
	File string // its own certificate
	Pool *x509.CertPool
	Dir  string // where files go
	cert *x509.Certificate
	Key  crypto.Signer
	last int64 // serial number
}

// A Leaf is a certificate and its key, in files and ready for crypto/tls.
type Leaf struct {
	Cert, Key string // files
	tls.Certificate
}

// ECDSAKey and RSAKey are the keys of all that is issued: new ones take time and
// prove nothing.
var (
	ECDSAKey = sync.OnceValue(func() crypto.Signer {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		return k
	})
	RSAKey = sync.OnceValue(func() crypto.Signer {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return k
	})
)

// NewAuthority makes an authority whose files go when the test ends.
func NewAuthority(t testing.TB) *Authority {
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
	a := &Authority{Dir: t.TempDir(), Key: key, last: 1, Pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.Pool.AddCert(a.cert)
	a.File = filepath.Join(a.Dir, "ca.pem")
	WritePEM(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate with an ECDSA key for names and IP addresses; the first
// is its common name.
func (a *Authority) Issue(t testing.TB, names ...string) Leaf {
	t.Helper()
	return a.IssueFor(t, ECDSAKey(), func(*x509.Certificate) {}, names...)
}

// IssueFor is Issue for a key; change has the last word.
func (a *Authority) IssueFor(t testing.TB, key crypto.Signer, change func(*x509.Certificate), names ...string) Leaf {
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
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.Key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(a.Dir, fmt.Sprint(a.last))
	l := Leaf{Cert: base + ".crt", Key: base + ".key"}
	WritePEM(t, l.Cert, "CERTIFICATE", der)
	WritePEM(t, l.Key, "PRIVATE KEY", pkcs8)
	if l.Certificate, err = tls.LoadX509KeyPair(l.Cert, l.Key); err != nil {
		t.Fatal(err)
	}
	return l
}

// WritePEM writes one block of PEM.
func WritePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Serial tells certificates of one authority from each other.
func (l Leaf) Serial() int64 { return l.Leaf.SerialNumber.Int64() }

// YAML is the leaf as an item of tls.certificates.
func (l Leaf) YAML() string { return fmt.Sprintf("{cert: %s, key: %s}", l.Cert, l.Key) }

// ServiceTLS is the key tls of a service that shows the leaf; more is further keys.
func (l Leaf) ServiceTLS(more ...string) string {
	s := "tls: {certificates: [" + l.YAML() + "]"
	for _, m := range more {
		s += ", " + m
	}
	return s + "}"
}

// ClientConfig is the configuration of a client that trusts the authority only.
func (a *Authority) ClientConfig(name string) *tls.Config {
	return &tls.Config{RootCAs: a.Pool, ServerName: name}
}

// ServerConfig is the configuration of a server with these certificates.
func ServerConfig(l ...Leaf) *tls.Config {
	c := &tls.Config{}
	for _, l := range l {
		c.Certificates = append(c.Certificates, l.Certificate)
	}
	return c
}

// DialTLS connects a client over TLS for the length of the test, at most.
func DialTLS(t testing.TB, addr string, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	c := tls.Client(Connect(t, addr), config)
	if err := c.Handshake(); err != nil {
		c.NetConn().Close()
		return nil, err
	}
	return c, nil
}

// MustDialTLS is DialTLS that may not fail.
func MustDialTLS(t testing.TB, addr string, config *tls.Config) *tls.Conn {
	t.Helper()
	c, err := DialTLS(t, addr, config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ShownSerial is the serial number of the certificate that a new connection is shown.
func ShownSerial(t testing.TB, addr string, config *tls.Config) (int64, error) {
	t.Helper()
	c, err := DialTLS(t, addr, config)
	if err != nil {
		return 0, err
	}
	defer c.NetConn().Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// ReplaceFile puts the content of one file in the place of another by a rename, as
// programs that renew certificates do.
func ReplaceFile(t testing.TB, path, with string) {
	t.Helper()
	b, err := os.ReadFile(with)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
