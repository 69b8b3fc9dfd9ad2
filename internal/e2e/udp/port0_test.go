package udp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// forger sends datagrams of IPv4 whose source is invented.
type forger struct{ fd int }

func newForger(t *testing.T) forger {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		rig.Unavailable(t, "no raw socket: "+err.Error())
	}
	t.Cleanup(func() { unix.Close(fd) })
	return forger{fd}
}

// send sends a datagram without a checksum; the kernel completes the IPv4 header.
func (f forger) send(t *testing.T, from, to netip.AddrPort, payload string) {
	t.Helper()
	p := make([]byte, 28, 28+len(payload))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(p[12:], from.Addr().AsSlice())
	copy(p[16:], to.Addr().AsSlice())
	for i, n := range []int{int(from.Port()), int(to.Port()), 8 + len(payload)} {
		p[20+2*i], p[21+2*i] = byte(n>>8), byte(n)
	}
	if err := unix.Sendto(f.fd, append(p, payload...), 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
}

// Case O-54: datagrams from port 0 go on. What is sent back has nowhere to go and is
// counted; nothing else comes of it.
func TestUDPFromPortZero(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	listen := rig.UDPAddr(t)
	p := rig.Start(t, rig.UDPConfig(listen, "replies: 1", "check: {type: none}", rig.Member("a", rig.StartTeller(t, "a"))))
	to, other := netip.MustParseAddrPort(listen), rig.DialUDP(t, listen)
	sent, asked := 0, 0
	rounds := func(n int, source func() netip.Addr) {
		t.Helper()
		lines, before := strings.Count(p.Stderr(), "\n"), time.Now()
		for range n {
			f.send(t, netip.AddrPortFrom(source(), 0), to, "request-0")
			if sent++; sent%100 == 0 {
				other.MustAsk(t) // another client, and what was sent before has been taken
				asked++
			}
		}
		var m rig.Series
		count := func(format string) float64 { return m[fmt.Sprintf(format, `service="web"`)] }
		rig.Eventually(t, "every datagram to be accounted for", func() bool {
			m = p.Metrics(t)
			in := count(`poise_service_datagrams_total{direction="in",%s}`)
			lost := count(`poise_udp_dropped_total{reason="overflow",%s}`) + count(`poise_udp_dropped_total{reason="refused",%s}`)
			return int(in+lost) == sent+asked && in > 0
		})
		if in, out := count(`poise_service_datagrams_total{direction="in",%s}`), count(`poise_service_datagrams_total{direction="out",%s}`); int(out) != asked || int(in) < sent/2 {
			t.Errorf("of %d, %v came in, and %v were returned to the other client, which asked %d times", sent, in, out, asked)
		}
		rig.Eventually(t, "the replies to be counted", func() bool {
			m = p.Metrics(t)
			return count(`poise_udp_dropped_total{reason="send_failed",%s}`) > 0
		})
		if more := strings.Count(p.Stderr(), "\n") - lines; float64(more) > 1+time.Since(before).Seconds() {
			t.Errorf("%d lines in the log", more)
		}
	}
	rounds(200, func() netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	rounds(20_000, func() netip.Addr {
		return netip.AddrFrom4([4]byte{127, 1, byte(rand.IntN(256)), byte(rand.IntN(256))})
	})
	rig.Eventually(t, "the sessions to end", func() bool { return p.Status(t).Connections == 0 })
	before := p.CPU(t)
	time.Sleep(time.Second)
	if spent := p.CPU(t) - before; spent > 500*time.Millisecond {
		t.Errorf("%v of CPU in a second without work", spent)
	}
}
