package health

import "context"

// tlsProber shakes hands and says no more: the backend is healthy if it shows a
// certificate that is fit for clients.
type tlsProber struct {
	dialer
	tls  *shaker
	alpn []string
}

var tlsCheck = Check{Word: "tls", New: newTLSProber, Fails: connecting, TLS: func(Spec) bool { return true }}

func newTLSProber(s Spec, network, address string) Prober {
	d := s.dialer(network, address)
	return &tlsProber{d, s.shaker(d), s.TLS.ALPN}
}

// Probe connects and shakes hands, then closes as a client that has nothing to
// say.
func (p *tlsProber) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn) // with it the tickets that servers send after the handshake are read
	stop := setDeadline(ctx, conn)
	defer stop()
	secure, err := p.tls.shake(ctx, conn, p.alpn)
	if err != nil {
		return err
	}
	_ = secure.CloseWrite() // close_notify (RFC 8446, section 6.1); the answer is known anyway
	return nil
}
