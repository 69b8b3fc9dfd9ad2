package udp

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// sum is what a backend says it has received.
func sum(d []byte) []byte { return fmt.Appendf(nil, "received %d %x", len(d), sha256.Sum256(d)) }

// faithful returns the datagram, and then what it was: a large one leaves no room
// for both at once.
func faithful(d []byte, _ netip.AddrPort) [][]byte { return [][]byte{d, sum(d)} }

// datagram is n bytes that look like no others.
func datagram(n, seed int) []byte {
	d := make([]byte, n)
	x := uint32(n*31+seed)*2654435761 + 1
	for i := range d {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		d[i] = byte(x)
	}
	return d
}

// sizes are those of case O-23: around the MTU of Ethernet, around usual buffers,
// and the ends of what there can be.
var sizes = []int{0, 1, 512, 1472, 1473, 2048, 8192, 8193, 9216, 65507}

// sizesConfig has two services, of a backend of each IP version, that listen at both.
func sizesConfig(listen4, listen6 [2]string, be4, be6 net.Addr) string {
	return fmt.Sprintf(`
defaults: {pools: {check: {type: none}}, services: {protocol: udp, udp: {idle: 1h}}}
services:
  four: {listen: [%q, %q], pool: four}
  six: {listen: [%q, %q], pool: six}
pools:
  four: {backends: [%q]}
  six: {backends: [%q]}
`, listen4[0], listen4[1], listen6[0], listen6[1], be4, be6)
}

// Case O-23: datagrams of every size, unchanged.
func TestUDPSizes(t *testing.T) {
	t.Parallel()
	one, two := rig.UDPAddr(t), rig.UDPAddr(t)
	listen4 := [2]string{one, strings.Replace(one, "127.0.0.1", "[::1]", 1)}
	listen6 := [2]string{two, strings.Replace(two, "127.0.0.1", "[::1]", 1)}
	be4, be6 := rig.ListenUDP(t, nil, "127.0.0.1:0"), rig.ListenUDP(t, nil, "[::1]:0")
	rig.AnswerUDP(t, be4, faithful)
	rig.AnswerUDP(t, be6, faithful)
	p := rig.Start(t, sizesConfig(listen4, listen6, be4.LocalAddr(), be6.LocalAddr()))
	for _, addr := range append(listen4[:], listen6[:]...) {
		everySize(t, p, rig.DialUDP(t, addr))
		trains(t, rig.DialUDP(t, addr), 1200)
		trains(t, rig.DialUDP(t, addr), 9000)
	}
	tooLarge(t, p, rig.DialUDP(t, listen4[1]), "four")
	tooLarge(t, p, rig.DialUDP(t, listen6[1]), "six")
}

// The same over Ethernet, where the large ones are in fragments.
func TestLabUDPSizes(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	be4, be6 := rig.ListenUDP(t, l.Backend1, "10.78.0.11:9001"), rig.ListenUDP(t, l.Backend1, "[fd78::11]:9001")
	rig.AnswerUDP(t, be4, faithful)
	rig.AnswerUDP(t, be6, faithful)
	for _, h := range []*lab.Host{l.Client, l.Backend1} {
		for _, link := range []string{lab.FrontLink, lab.BackLink} {
			h.Do(func() {
				if i, err := net.InterfaceByName(link); err == nil && i.MTU != 1500 {
					t.Errorf("the MTU of %s is %d", link, i.MTU)
				}
			})
		}
	}
	listen4, listen6 := [2]string{"10.77.0.10:5304", "[fd77::10]:5304"}, [2]string{"10.77.0.10:5306", "[fd77::10]:5306"}
	p := rig.StartOn(t, l, sizesConfig(listen4, listen6, be4.LocalAddr(), be6.LocalAddr()))
	for _, addr := range append(listen4[:], listen6[:]...) {
		everySize(t, p, rig.DialUDPFrom(t, l.Client, addr))
		trains(t, rig.DialUDPFrom(t, l.Client, addr), 1200)
	}
	// A narrower way to the backend, in the middle of it: trains that came in whole do
	// not fit it.
	during := rig.DialUDPFrom(t, l.Client, listen4[0])
	trains(t, during, 1400)
	l.Backend1.Run(t, "ip", "link", "set", lab.BackLink, "mtu", "1280")
	l.Balancer.Run(t, "ip", "link", "set", lab.BackLink, "mtu", "1280")
	trains(t, during, 1400)
	for _, addr := range append(listen4[:], listen6[:]...) {
		everySize(t, p, rig.DialUDPFrom(t, l.Client, addr))
		trains(t, rig.DialUDPFrom(t, l.Client, addr), 1400)
	}
	if n := rig.Counter(t, l.Client, "Ip", "FragCreates"); n == 0 {
		t.Error("nothing was sent in fragments")
	}
	if n := rig.Counter(t, l.Client, "Ip", "ReasmOKs"); n == 0 {
		t.Error("nothing came in fragments")
	}
}

// everySize sends a datagram of each size on one session.
func everySize(t *testing.T, p *rig.Proc, c *rig.UDPClient) {
	t.Helper()
	before := p.Status(t).Connections
	for i, size := range append(sizes, 0, 7) { // what follows an empty one has the same session
		d := datagram(size, i)
		if _, err := c.Write(d); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		want := [][]byte{d, sum(d)}
		for range want {
			got := c.Receive(t)
			switch {
			case len(want) > 0 && bytes.Equal(got[0], want[0]):
				want = want[1:]
			case len(want) > 1 && bytes.Equal(got[0], want[1]): // the other way round is no harm
				want = want[:1]
			default:
				t.Fatalf("%v, %d bytes: got %d bytes instead, %.99q", c.RemoteAddr(), size, len(got[0]), got[0])
			}
		}
	}
	s := p.Status(t)
	if s.Connections != before+1 {
		t.Errorf("%v: %d sessions were made for one client", c.RemoteAddr(), s.Connections-before)
	}
	for _, svc := range s.Services {
		if len(svc.UDP.Dropped) != 0 {
			t.Errorf("%v: %v were dropped", c.RemoteAddr(), svc.UDP.Dropped)
		}
	}
}

// trains sends datagrams in trains that the kernel, or the network card, cuts up
// (UDP GSO), and takes replies in such trains (UDP GRO).
func trains(t *testing.T, c *rig.UDPClient, segment int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, segment); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1)
		}
	})
	if err != nil {
		t.Fatalf("GSO and GRO: %v", err)
	}
	for round := range 5 {
		train := datagram(40_000+segment/2-40_000%segment, round) // the last one is shorter
		if _, err := c.Write(train); err != nil {
			t.Fatal(err)
		}
		var want [][]byte
		for rest := train; len(rest) > 0; {
			d := rest[:min(segment, len(rest))]
			want, rest = append(want, d, sum(d)), rest[len(d):]
		}
		left := map[string]int{}
		for _, d := range want {
			left[string(d)]++
		}
		for got := 0; got < len(want); {
			for _, d := range c.Receive(t) {
				if left[string(d)] == 0 {
					t.Fatalf("%v: %d bytes that are none of those due: %.99q", c.RemoteAddr(), len(d), d)
				}
				left[string(d)]--
				got++
			}
		}
	}
}

// tooLarge sends what only IPv6 can carry, and Poise does not promise to: it arrives
// whole, or is dropped and counted, and the session goes on.
func tooLarge(t *testing.T, p *rig.Proc, c *rig.UDPClient, service string) {
	t.Helper()
	const size = 65527
	dropped := func() float64 {
		return p.Metrics(t)[fmt.Sprintf(`poise_udp_dropped_total{reason="too_large",service=%q}`, service)]
	}
	before := dropped()
	d := datagram(size, 1)
	if _, err := c.Write(d); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("next")); err != nil {
		t.Fatal(err)
	}
	whole := false
	for next := false; !next; {
		for _, got := range c.Receive(t) {
			switch {
			case bytes.Equal(got, d):
				whole = true
			case bytes.Equal(got, []byte("next")):
				next = true
			case bytes.Equal(got, sum(d)):
			default:
				t.Fatalf("%d bytes came instead: %.99q", len(got), got)
			}
		}
	}
	if n := dropped() - before; whole && n != 0 || !whole && n != 1 {
		t.Errorf("%s: arrived whole: %v; %v are counted", service, whole, n)
	}
}
