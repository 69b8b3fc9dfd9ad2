package health

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
)

// askHTTP2 sends one request by HTTP/2 over a lent connection: with TLS if there is
// a shaker, else in clear with prior knowledge (RFC 9113, section 3.3). If there is
// no error the caller calls bye when done with the response. The goroutines of the
// client end with the connection. The error is a *Failure, or ErrLocal.
func askHTTP2(ctx context.Context, l *lent, s *shaker, req *http.Request) (resp *http.Response, bye func(), err error) {
	t := &http.Transport{Protocols: new(http.Protocols), MaxResponseHeaderBytes: maxHTTPHeader, DisableCompression: true}
	if s == nil {
		t.Protocols.SetUnencryptedHTTP2(true)
		t.DialContext = l.dial
	} else {
		secure, err := l.shake(ctx, s, "h2")
		if err != nil {
			return nil, nil, err
		}
		t.Protocols.SetHTTP2(true)
		t.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return secure, nil }
	}
	client, err := t.NewClientConn(ctx, req.URL.Scheme, authority(req.URL.Host))
	if err != nil {
		return nil, nil, http2Failure(l, err)
	}
	bye = func() { _ = client.Close() } // says so to the backend, but cannot close what is lent
	resp, err = client.RoundTrip(req.WithContext(ctx))
	if err != nil {
		bye()
		return nil, nil, http2Failure(l, err)
	}
	return resp, bye, nil
}

// shake does the handshake at once.
func (l *lent) shake(ctx context.Context, s *shaker, alpn string) (*tls.Conn, error) {
	secure, err := s.shake(ctx, l, []string{alpn})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.phase = tlsDone
	l.mu.Unlock()
	return secure, nil
}

// http2Failure is why there was no answer, or no whole one. What the connection met
// says more than what the client makes of it, but that the time is up may be found
// out by either.
func http2Failure(l *lent, err error) error {
	if f := (*Failure)(nil); errors.As(err, &f) || timedOut(err) {
		return asFailure(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return answerFailure(l.err)
	}
	return answerFailure(err)
}

// authority is host with a port, which NewClientConn wants though it is not the
// one to dial.
func authority(host string) string {
	if _, _, err := net.SplitHostPort(host); err != nil {
		return net.JoinHostPort(host, "0")
	}
	return host
}
