package cert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second // for what takes milliseconds on an idle machine

// Keys are slow to make under the race detector, and which it is never matters
// but where a test makes its own.
var (
	ecKey  = sync.OnceValue(newECKey)
	rsaKey = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	edKey  = sync.OnceValue(func() crypto.Signer { _, k, err := ed25519.GenerateKey(rand.Reader); return must(k, err) })
)

func newECKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var serial = struct {
	sync.Mutex
	n int64
}{n: 1000}

func nextSerial() *big.Int {
	serial.Lock()
	defer serial.Unlock()
	serial.n++
	return big.NewInt(serial.n)
}

func newAuthority(name string) *authority {
	key := newECKey()
	tpl := &x509.Certificate{
		SerialNumber: nextSerial(), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der := must(x509.CreateCertificate(rand.Reader, tpl, tpl, key.Public(), key))
	return &authority{cert: must(x509.ParseCertificate(der)), key: key}
}

func (a *authority) pem() []byte { return pemOf("CERTIFICATE", a.cert.Raw) }

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue returns a certificate in PEM for key; edit changes the template.
func (a *authority) issue(key crypto.Signer, edit func(*x509.Certificate), names ...string) []byte {
	tpl := &x509.Certificate{
		SerialNumber: nextSerial(), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tpl.IPAddresses = append(tpl.IPAddresses, ip)
		} else {
			tpl.DNSNames = append(tpl.DNSNames, n)
		}
	}
	if edit != nil {
		edit(tpl)
	}
	return pemOf("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, tpl, a.cert, key.Public(), a.key)))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func keyPEM(key crypto.Signer) []byte {
	return pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
}

func write(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replace puts a file in another one's place at once, as careful programs do.
func replace(t testing.TB, path string, data []byte) {
	t.Helper()
	write(t, path+".new", data)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// pairIn writes a certificate and its key to dir.
func pairIn(t testing.TB, dir, name string, crt []byte, key crypto.Signer) Pair {
	t.Helper()
	return Pair{Cert: write(t, filepath.Join(dir, name+".crt"), crt), Key: write(t, filepath.Join(dir, name+".key"), keyPEM(key))}
}

func load(t testing.TB, spec Spec, old *Store) *Store {
	t.Helper()
	s, err := Load(spec, old)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// meeting is what both ends of a handshake have to say about it.
type meeting struct {
	client, server       tls.ConnectionState
	clientErr, serverErr error
}

// meet has a client and a server shake hands over a real connection, and exchange
// a byte each way: so tickets have arrived, and refused clients know.
func meet(t testing.TB, server, client *tls.Config) meeting {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var m meeting
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := ln.Accept()
		if err != nil {
			m.serverErr = err
			return
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(patience))
		c := tls.Server(raw, server)
		m.serverErr = serve(c)
		m.server = c.ConnectionState()
	}()
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(patience))
	c := tls.Client(raw, client)
	m.clientErr = func() error {
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}()
	m.client = c.ConnectionState()
	raw.Close()
	<-done
	return m
}

func serve(c *tls.Conn) error {
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return err
	}
	_, err := c.Write([]byte{2})
	return err
}

// shake is a meeting that has to go well.
func shake(t testing.TB, server, client *tls.Config) meeting {
	t.Helper()
	m := meet(t, server, client)
	if m.clientErr != nil || m.serverErr != nil {
		t.Fatalf("handshake: client: %v; server: %v", m.clientErr, m.serverErr)
	}
	return m
}

// serialOf is the number of the certificate that a client of this name is shown.
func serialOf(t testing.TB, s *Store, name string) int64 {
	t.Helper()
	m := shake(t, s.Config(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	return m.client.PeerCertificates[0].SerialNumber.Int64()
}

// numberOf is the serial number of a certificate in PEM.
func numberOf(crt []byte) int64 { return must(parseChain(crt))[0].SerialNumber.Int64() }
