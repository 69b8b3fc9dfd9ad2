package tcp_test

import (
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
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

// credentials are what the ends of these tests' TLS trust and show: one authority,
// and one certificate of it for everybody.
type credentials struct {
	ca, crt, key []byte // PEM
	pool         *x509.CertPool
	pair         tls.Certificate
}

var creds = sync.OnceValue(func() *credentials {
	caKey, key := newKey(), newKey()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER := must(x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey))
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "somebody"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"a.test", "*.a.test", "b.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := must(x509.CreateCertificate(rand.Reader, leaf, must(x509.ParseCertificate(caDER)), key.Public(), caKey))
	c := &credentials{pool: x509.NewCertPool()}
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	c.crt = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
	c.pool.AppendCertsFromPEM(c.ca)
	c.pair = must(tls.X509KeyPair(c.crt, c.key))
	return c
})

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// write puts the credentials' files into a directory.
func (c *credentials) write(t *testing.T) (ca string, pair cert.Pair) {
	t.Helper()
	dir := t.TempDir()
	pair = cert.Pair{Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key")}
	ca = filepath.Join(dir, "ca")
	for path, data := range map[string][]byte{ca: c.ca, pair.Cert: c.crt, pair.Key: c.key} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca, pair
}

// serverTLS is the configuration of a service that ends its clients' TLS.
func serverTLS(t *testing.T, edit func(*cert.Spec)) *tls.Config {
	t.Helper()
	ca, pair := creds().write(t)
	spec := cert.Spec{Certificates: []cert.Pair{pair}, MinVersion: tls.VersionTLS12}
	if edit != nil {
		edit(&spec)
		if spec.ClientCA != "" {
			spec.ClientCA = ca
		}
	}
	return must(cert.Load(spec, nil)).Config()
}

// backendTLS is the configuration towards TLS backends.
func backendTLS(t *testing.T) *cert.Client {
	t.Helper()
	ca, pair := creds().write(t)
	return must(cert.LoadClient(cert.ClientSpec{ServerName: "a.test", CA: ca, Cert: pair.Cert, Key: pair.Key, Verify: true}))
}

// An end is a stream at one of the two ends, as a test sees it.
type end interface {
	net.Conn
	CloseWrite() error
}

// raw is the socket under an end.
func raw(e end) *net.TCPConn {
	if t, ok := e.(*tls.Conn); ok {
		return t.NetConn().(*net.TCPConn)
	}
	return e.(*net.TCPConn)
}

func clientConfig() *tls.Config {
	return &tls.Config{RootCAs: creds().pool, ServerName: "a.test"}
}

func tlsServer(c *net.TCPConn) *tls.Conn {
	return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{creds().pair}, MinVersion: tls.VersionTLS12})
}

// A mode is a way through the proxy: what is done on either leg besides relaying.
type mode struct {
	name     string
	proxyIn  bool
	proxyOut int // version
	sni      bool
	front    bool
	back     bool
	version  uint16 // of TLS, the only one; 0 = any
	replay   int
}

// modes are all that the relay is tested in.
var modes = []mode{
	{name: "plain"},
	{name: "TLS front", front: true},
	{name: "TLS back", back: true},
	{name: "both", front: true, back: true},
	{name: "both, TLS 1.2", front: true, back: true, version: tls.VersionTLS12},
	{name: "PROXY in", proxyIn: true},
	{name: "PROXY out v1", proxyOut: 1},
	{name: "PROXY out v2", proxyOut: 2},
	{name: "SNI", sni: true},
	{name: "replay", replay: 16 << 10},
	{name: "PROXY in, SNI, PROXY out", proxyIn: true, sni: true, proxyOut: 1},
	{name: "everything", proxyIn: true, front: true, proxyOut: 2, back: true, replay: 16 << 10},
}

// apply sets a route up.
func (m mode) apply(t *testing.T) func(*tcp.Route) {
	return func(r *tcp.Route) {
		r.Spec.FirstBytes, r.Spec.Connect, r.Spec.ConnectTotal = patience, patience, patience // handshakes are slow under the race detector
		if m.proxyIn {
			r.Spec.Proxy = tcp.ProxyIn{Accept: wire.AcceptAny, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		}
		r.To.Proxy = tcp.ProxyOut{Version: m.proxyOut}
		r.To.Replay = m.replay
		if m.front {
			r.TLS = serverTLS(t, nil)
			r.Spec.MaxHandshakes = 100
		}
		if m.back {
			r.To.TLS = backendTLS(t)
		}
		if m.sni {
			r.SNI = tcp.NewSNI([]tcp.SNIRule{{Name: "a.test", To: r.To}})
			r.To = nil
		}
	}
}

// theClient is whom the modes with PROXY in speak for.
var theClient = netip.MustParseAddrPort("192.0.2.7:40000")

const proxyLine = "PROXY TCP4 192.0.2.7 198.51.100.9 40000 443\r\n"

// client begins as a client of this mode does.
func (m mode) client(t *testing.T, c *net.TCPConn) end {
	t.Helper()
	if m.proxyIn {
		if _, err := c.Write([]byte(proxyLine)); err != nil {
			t.Fatal(err)
		}
	}
	if m.front || m.sni {
		config := clientConfig()
		if m.version != 0 {
			config.MinVersion, config.MaxVersion = m.version, m.version
		}
		return tls.Client(c, config)
	}
	return c
}

// backend begins as a backend of this mode does: it takes the header off and checks
// it, and ends the TLS. It returns nil if there is no connection any more.
func (m mode) backend(t *testing.T, c *net.TCPConn) end {
	if m.proxyOut != 0 {
		h, err := readHeader(c)
		if err != nil {
			return nil
		}
		if m.proxyIn && h.Source != theClient {
			t.Errorf("the backend is told of %v", h.Source)
		}
		if int(h.Version) != m.proxyOut || h.Local {
			t.Errorf("the backend is sent %+v", h)
		}
	}
	if m.back || m.sni {
		return tlsServer(c)
	}
	return c
}

// readHeader reads a PROXY header and not a byte more.
func readHeader(c io.Reader) (wire.ProxyHeader, error) {
	p := wire.ProxyParser{Accept: wire.AcceptAny}
	for b := make([]byte, 0, 256); ; {
		b = append(b, 0)
		if _, err := io.ReadFull(c, b[len(b)-1:]); err != nil {
			return wire.ProxyHeader{}, err
		}
		if n, err := p.Next(b); n > 0 || err != nil {
			return p.Header(), err
		}
	}
}

// through runs a proxy of this mode before one backend that handle serves.
func (m mode) through(t *testing.T, handle func(end), adjust ...func(*tcp.Route)) *proxy {
	t.Helper()
	return start(t, one(m.serve(t, handle)), append([]func(*tcp.Route){m.apply(t)}, adjust...)...)
}

// serve is a backend of this mode.
func (m mode) serve(t *testing.T, handle func(end)) balance.BackendSpec {
	t.Helper()
	return serve(t, func(c *net.TCPConn) {
		if e := m.backend(t, c); e != nil {
			handle(e)
			e.Close()
		}
	})
}
