package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/poise-lb/poise/l4/watch"
)

// shaker makes TLS of the connections of one target's probes.
type shaker struct {
	spec  TLS
	host  string // verified if the spec has no server name
	roots *roots
}

// shaker returns what makes TLS of connections to the address of d.
func (s Spec) shaker(d dialer) *shaker {
	host := "localhost"
	if d.network != "unix" {
		host, _, _ = net.SplitHostPort(d.address)
		host, _, _ = strings.Cut(host, "%") // a zone is this host's business
	}
	return &shaker{spec: s.TLS, host: host, roots: newRoots(s.TLS.CA)}
}

// shake does the handshake and notes when the certificate expires. The deadline
// is the one of conn. The error is a *Failure of layer 6 or ErrLocal.
func (s *shaker) shake(ctx context.Context, conn net.Conn, alpn []string) (*tls.Conn, error) {
	cfg, err := s.config()
	if err != nil {
		return nil, err
	}
	cfg.NextProtos = alpn
	secure := tls.Client(conn, cfg)
	if err := secure.Handshake(); err != nil {
		if cert := (*tls.CertificateVerificationError)(nil); errors.As(err, &cert) {
			noteExpiry(ctx, cert.UnverifiedCertificates, nil)
		}
		return nil, handshakeFailure(err)
	}
	state := secure.ConnectionState()
	noteExpiry(ctx, state.PeerCertificates, state.VerifiedChains)
	if len(alpn) > 0 && state.NegotiatedProtocol == "" { // servers are free to take no notice
		return nil, failf(L6RSP, "speaks none of %s (ALPN)", strings.Join(alpn, ", "))
	}
	return secure, nil
}

// config is what the client side does. The caller may change it.
func (s *shaker) config() (*tls.Config, error) {
	cfg := &tls.Config{ServerName: s.spec.ServerName, InsecureSkipVerify: s.spec.NoVerify}
	if cfg.ServerName == "" {
		cfg.ServerName = s.host
	}
	if s.spec.CA != "" && !s.spec.NoVerify {
		pool, err := s.roots.pool()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLocal, err)
		}
		cfg.RootCAs = pool
	}
	return cfg, nil
}

// noteExpiry notes when a certificate expires: the leaf, or one that it needs. Of
// several verified chains the one that lasts longest counts, and what a server
// sends beyond them does not.
func noteExpiry(ctx context.Context, sent []*x509.Certificate, verified [][]*x509.Certificate) {
	if len(verified) == 0 && len(sent) > 0 {
		verified = [][]*x509.Certificate{sent[:1]}
	}
	n := notesOf(ctx)
	for _, chain := range verified {
		expires := chain[0].NotAfter
		for _, cert := range chain[1:] {
			if cert.NotAfter.Before(expires) {
				expires = cert.NotAfter
			}
		}
		if expires.After(n.certExpires) {
			n.certExpires = expires
		}
	}
}

// handshakeFailure is why there was no handshake on an established connection.
func handshakeFailure(err error) *Failure {
	switch {
	case timedOut(err):
		return failf(L6TOUT, "no TLS handshake within the timeout")
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return failf(L6RSP, "closed in the TLS handshake")
	}
	return &Failure{L6RSP, bare(err)}
}

// roots are the certificates of a file. It is read again when it has changed, so
// that replacing it needs no reload.
type roots struct {
	mu   sync.Mutex // guards the following
	file watch.File[*x509.CertPool]
}

func newRoots(path string) *roots {
	parse := func(pem []byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", path)
		}
		return pool, nil
	}
	return &roots{file: watch.File[*x509.CertPool]{Path: path, Limit: maxRoots, Parse: parse}}
}

// CheckFiles returns an error that begins with a key below check if a file that the
// check needs cannot be used as it is.
func (s *Spec) CheckFiles() error {
	if s.TLS.CA == "" || s.TLS.NoVerify {
		return nil
	}
	if _, err := newRoots(s.TLS.CA).pool(); err != nil {
		return fmt.Errorf("tls.ca: %w", err)
	}
	return nil
}

// maxRoots is more than any bundle of certificates has.
const maxRoots = 8 << 20

func (r *roots) pool() (*x509.CertPool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Get()
}
