package udp_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

// forge sends a datagram from an address that may be another's, which takes root.
func forge(t *testing.T, from, to netip.AddrPort, payload string) {
	t.Helper()
	p := make([]byte, 8, 64)
	binary.BigEndian.PutUint16(p[0:], from.Port())
	binary.BigEndian.PutUint16(p[2:], to.Port())
	binary.BigEndian.PutUint16(p[4:], uint16(8+len(payload)))
	p = append(p, payload...)
	src, dst := from.Addr().AsSlice(), to.Addr().AsSlice()
	// The checksum, over the pseudo header too (RFC 768, RFC 8200 section 8.1).
	sum := uint32(unix.IPPROTO_UDP) + uint32(len(p))
	for _, b := range [][]byte{src, dst, p} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(b[i]) << 8
			if i+1 < len(b) {
				sum += uint32(b[i+1])
			}
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[6:], ^uint16(sum))
	var sa unix.Sockaddr
	family := unix.AF_INET
	if from.Addr().Is4() {
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, unix.IPPROTO_UDP
		copy(h[12:], src)
		copy(h[16:], dst)
		p, sa = append(h, p...), &unix.SockaddrInet4{Addr: to.Addr().As4()}
	} else {
		h := make([]byte, 40)
		h[0], h[6], h[7] = 0x60, unix.IPPROTO_UDP, 64
		binary.BigEndian.PutUint16(h[4:], uint16(len(p)))
		copy(h[8:], src)
		copy(h[24:], dst)
		p, sa, family = append(h, p...), &unix.SockaddrInet6{Addr: to.Addr().As16()}, unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, p, 0, sa); err != nil {
		t.Fatal(err)
	}
}

// Case O-42: a datagram that claims to come from one of our own listeners or sockets, or
// from a backend, does not go round. Before, each was relayed some thousand times a
// second, without end.
func TestForgedSources(t *testing.T) {
	if !alone(t) {
		return
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, listen := range []string{"specific", "wildcard", "dual stack"} {
			for _, kind := range []string{"sessions", "replies 1", "spray"} {
				t.Run(fmt.Sprint(host, " ", listen, " ", kind), func(t *testing.T) { testForgedSources(t, host, listen, kind) })
			}
		}
	}
}

func testForgedSources(t *testing.T, host, listen, kind string) {
	at := netip.MustParseAddr(host)
	bind := at
	switch {
	case listen == "dual stack":
		bind = netip.IPv6Unspecified()
	case listen == "wildcard" && at.Is4():
		bind = netip.IPv4Unspecified()
	case listen == "wildcard":
		bind = netip.IPv6Unspecified()
	}
	on := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(at, port) }
	back := serve(t, "a", on(9000).String(), func(b []byte) []byte { return b })
	p := start(t, specs(back), func(r *udp.Route) {
		r.Spec.Spray = kind == "spray"
		if kind == "replies 1" {
			r.Spec.Replies = 1
		}
		r.Spec.Listen = nil
		for _, port := range []uint16{5300, 5301} { // as a range does
			r.Spec.Listen = append(r.Spec.Listen, l4.Listen{Addr: netip.AddrPortFrom(bind, port), V6Only: listen == "wildcard"})
		}
	})
	other := p.route
	other.Spec.Name, other.Spec.Listen = "other", []l4.Listen{{Addr: netip.AddrPortFrom(bind, 5302), V6Only: listen == "wildcard"}}
	p.run(p.route, other)
	stats := func() *udp.ServiceStats {
		p.Flush()
		for _, s := range p.Services() {
			if s.Name == "service" {
				return &s.Stats
			}
		}
		return nil
	}
	// A client of this host, whose session has a socket towards the backend.
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(on(5300)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(patience))
	client.Write([]byte("mine"))
	eventually(t, "the client's datagram to come", func() bool { return back.count() == 1 })
	var session netip.AddrPort
	back.mu.Lock()
	for a := range back.from {
		session = a
	}
	back.mu.Unlock()
	if kind != "spray" {
		reply(t, client)
	}
	froms := []netip.AddrPort{on(5300), on(5301), on(5302), on(9000)}
	if kind != "replies 1" { // whose session is over
		froms = append(froms, session)
	}
	for i, from := range froms {
		forge(t, from, on(5300), "forged")
		eventually(t, fmt.Sprint("what claims to be ", from, " to be dropped"), func() bool {
			return stats().Dropped[udp.DropLoop].Load() == uint64(i+1)
		})
	}
	if n := back.count(); n != 1 {
		t.Errorf("the backend got %d datagrams", n)
	}
	client.Write([]byte("again"))
	eventually(t, "the client to be served as before", func() bool { return back.count() == 2 })
	// The same port at an address that is not ours belongs to another host.
	if at.Is4() && listen == "specific" {
		forge(t, netip.MustParseAddrPort("127.0.0.3:5300"), on(5300), "another")
		eventually(t, "the same port of another address to be served", func() bool { return back.count() == 3 })
	}
}

// A service may be the backend of another.
func TestServiceBehindAnother(t *testing.T) {
	p := start(t, specs(echo(t, "a")))
	front := p.route
	front.Spec.Name, front.Spec.Listen = "front", []l4.Listen{{Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))}}
	spec := balance.BackendSpec{Name: "service", Weight: 100}
	spec.Addr.AddrPort = p.addr
	front.Pool = balance.New(balance.Spec{Name: "front", Algorithm: "round-robin", Backends: []balance.BackendSpec{spec}}, nil)
	p.run(p.route, front)
	if got := ask(t, p.dial(front.Spec.Listen[0].Addr), "through both"); got != "through both" {
		t.Errorf("got %q", got)
	}
}

// Case O-44, of UDP: with a dead backend on this host whose port is one that the kernel
// chooses, no client hears itself, and the port stays free for the backend. Before, 25
// of 600 clients did.
func TestNoSocketMeetsItself(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50099")
	var list []balance.BackendSpec
	for i, a := range []string{"127.0.0.1:50004", "127.0.0.1:50005", "[::1]:50006"} {
		b := balance.BackendSpec{Name: fmt.Sprint("dead", i), Weight: 100}
		b.Addr.AddrPort = netip.MustParseAddrPort(a)
		list = append(list, b)
	}
	p := start(t, list, fromElsewhere, func(r *udp.Route) { r.Source, r.Spec.Idle = netip.Addr{}, time.Hour })
	st := p.stats()
	for i := range 150 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 2, byte(i >> 8), byte(i)}))
		c.Write([]byte("secret"))
		c.Write([]byte("secret"))
		eventually(t, "the client to be taken or refused", func() bool { return attempts(st) > i })
		if foreign, n := hears(c, -1, time.Millisecond); n > 0 {
			t.Fatalf("client %d: %q", i, foreign)
		}
		c.Close()
		for _, b := range list {
			// A port that is turned down is taken for some microseconds.
			eventually(t, "the port to be free for the backend", func() bool {
				mine, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(b.Addr.AddrPort))
				if err == nil {
					mine.Close()
				}
				return err == nil
			})
		}
	}
}
