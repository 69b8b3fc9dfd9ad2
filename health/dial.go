package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/poise-lb/poise/l4/wire"
)

// dialer makes the connections of one target's probes.
type dialer struct {
	network, address string     // net.Dialer's words
	source           netip.Addr // local address; the zero value leaves it to the kernel
	proxy            string     // Spec.Proxy
}

func (s Spec) dialer(network, address string) dialer {
	proxy := s.Proxy
	if s.Port != 0 {
		proxy = ""
	}
	return dialer{network, address, s.Source, proxy}
}

// dial connects for a probe and sends the PROXY header, if there is to be one.
// Its error is a *Failure of layer 4 or ErrLocal.
func (d dialer) dial(ctx context.Context) (net.Conn, error) {
	nd := net.Dialer{KeepAlive: -1} // a probe does not live long enough for the first one
	nd.LocalAddr, nd.Control = d.local()
	conn, err := nd.DialContext(ctx, d.network, d.address)
	if err != nil {
		return nil, dialFailure(err)
	}
	if header := d.header(); header != nil {
		if _, err := conn.Write(header); err != nil { // reset already: there is room for 16 bytes
			conn.Close()
			return nil, &Failure{L4CON, bare(err)}
		}
	}
	return conn, nil
}

// maxResting is how many ports at which answers to others may come are passed over in a
// row, before there is none for a check.
const maxResting = 16

// dialDatagrams connects a socket for questions in datagrams. Nothing in an answer has to
// say what it answers, so it must not come to a port at which answers to others may still
// come. Ports that are no good are held until one is found, so that the kernel offers others.
func (d dialer) dialDatagrams(ctx context.Context) (net.Conn, error) {
	ports := notesOf(ctx).ports
	for range maxResting {
		conn, err := d.dial(ctx)
		if err != nil || ports == nil || !ports.Rests(udpAddr(conn.LocalAddr()), udpAddr(conn.RemoteAddr())) {
			return conn, err
		}
		defer conn.Close()
	}
	return nil, localFailure(syscall.EADDRNOTAVAIL)
}

// unanswered keeps the port of a question that has had no answer from others, which a late
// one would reach. It is called before conn is closed.
func unanswered(ctx context.Context, conn net.Conn) {
	if ports := notesOf(ctx).ports; ports != nil {
		ports.Rest(udpAddr(conn.LocalAddr()), udpAddr(conn.RemoteAddr()))
	}
}

func udpAddr(a net.Addr) netip.AddrPort {
	at := a.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// local is the address to bind to, and how. The port is chosen when the socket is
// connected and not when it is bound: then it has to be unused towards this one
// backend only, and probes do not compete with clients' connections for ports.
func (d dialer) local() (net.Addr, func(network, address string, c syscall.RawConn) error) {
	if !d.source.IsValid() || d.network == "unix" {
		return nil, nil
	}
	at := net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.source, 0))
	if d.network == "udp" {
		return (*net.UDPAddr)(at), nil
	}
	return at, func(_, _ string, c syscall.RawConn) error {
		const ipBindAddressNoPort = 24 // include/uapi/linux/in.h; since Linux 4.2
		return c.Control(func(fd uintptr) {
			// Without the option a port is chosen at once, which works as well.
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
		})
	}
}

// header says that the connection is the balancer's own (case O-17), and no
// client's. Datagrams have none.
func (d dialer) header() []byte {
	switch {
	case d.network == "udp":
		return nil
	case d.proxy == "v1":
		return wire.AppendProxyV1Unknown(nil)
	case d.proxy == "v2":
		return wire.AppendProxyV2Local(nil)
	}
	return nil
}

var localErrnos = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL,
}

// localFailure returns ErrLocal with the errno if err is this host's own, else nil.
func localFailure(err error) error {
	for _, errno := range localErrnos {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrLocal, errno)
		}
	}
	return nil
}

// dialFailure is why there is no connection.
func dialFailure(err error) error {
	if local := localFailure(err); local != nil {
		return local
	}
	switch {
	case errors.Is(err, syscall.EAGAIN): // a unix socket's; it says Timeout() too
		return failf(L4CON, "accept queue full")
	case timedOut(err):
		return failf(L4TOUT, "no connection within the timeout")
	}
	return &Failure{L4CON, bare(err)}
}
