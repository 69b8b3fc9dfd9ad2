package health

import (
	"context"
)

// Datagram is the question of a udp check and the answer it expects.
type Datagram struct {
	Send   string // the payload, not empty
	Hex    bool   // Send is written as hex digits
	Expect Pattern
}

// maxDatagram is the largest payload there is.
const maxDatagram = 64 << 10

// udpProber sends one datagram and waits for one. An answer is the only sign of
// health there is: that no ICMP message came back says nothing, as it may have
// been filtered or be limited in rate. One that does come, on the connected
// socket, ends the probe at once.
type udpProber struct {
	dialer
	ask Datagram
}

var udpCheck = Check{Word: "udp", New: newUDPProber, Fails: reading, Datagrams: true}

func newUDPProber(s Spec, network, address string) Prober {
	d := s.dialer(network, address)
	if d.network == "tcp" {
		d.network = "udp"
	}
	return &udpProber{d, s.UDP}
}

// Probe sends the datagram and judges the first one that comes back: the kernel
// takes none but the backend's, and the port is one that no old answer comes to.
func (p *udpProber) Probe(ctx context.Context) error {
	if p.network == "unix" {
		return failf(L4CON, "a unix socket takes no datagrams")
	}
	conn, err := p.dialDatagrams(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := setDeadline(ctx, conn)
	defer stop()
	if _, err := conn.Write([]byte(p.ask.Send)); err != nil {
		return datagramFailure(err)
	}
	buf := make([]byte, maxDatagram)
	n, err := conn.Read(buf)
	if err != nil {
		unanswered(ctx, conn)
		return datagramFailure(err)
	}
	m := p.ask.Expect.matcher()
	if _, f := m.feed(buf[:n]); f == found || f == open && m.end() == found {
		return nil
	}
	return failf(L7RSP, "answered %s, want %s", excerpt(buf[:n]), p.ask.Expect)
}

// datagramFailure is why a datagram got no answer. Errors other than of this host
// come by ICMP.
func datagramFailure(err error) error {
	if local := localFailure(err); local != nil {
		return local
	}
	if timedOut(err) {
		return failf(L7TOUT, "no answer within the timeout")
	}
	return &Failure{L4CON, bare(err)}
}
