package lab

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// unwanted is how many datagrams a host has got that no socket of its wanted, as it
// has said by ICMP or only noted.
func unwanted(t *testing.T, h *lab.Host) int {
	t.Helper()
	return rig.Counter(t, h, "Icmp", "OutDestUnreachs") + rig.Counter(t, h, "Icmp6", "OutDestUnreachs") +
		rig.Counter(t, h, "Udp", "NoPorts") + rig.Counter(t, h, "Udp6", "NoPorts")
}

// Case O-22: a host with several addresses answers from the one that was asked.
func TestLabRepliesFromAddressAsked(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{`"0.0.0.0:5300", "[::]:5300"`, `":5300"`} {
		t.Run(listen, func(t *testing.T) {
			l := lab.New(t)
			var addrs []netip.AddrPort
			for _, last := range []string{"10", "11", "12"} {
				v4 := netip.MustParseAddr("10.77.0." + last)
				if v4 != lab.FrontAddr {
					l.Balancer.Run(t, "ip", "addr", "add", v4.String()+"/24", "dev", lab.FrontLink)
					l.Balancer.Run(t, "ip", "addr", "add", lab.Twin(v4).String()+"/64", "dev", lab.FrontLink, "nodad")
				}
				addrs = append(addrs, netip.AddrPortFrom(v4, 5300), netip.AddrPortFrom(lab.Twin(v4), 5300))
			}
			be := rig.ListenUDP(t, l.Backend1, "10.78.0.11:9001")
			rig.AnswerUDP(t, be, rig.Teller("be"))
			p := rig.StartOn(t, l, fmt.Sprintf("services: {web: {protocol: udp, listen: [%s], pool: web, udp: {idle: 1h}}}\n"+
				"pools: {web: {check: {type: none}, backends: [\"10.78.0.11:9001\"]}}\n", listen))
			before := unwanted(t, l.Client)

			// A connected socket gets nothing but what comes from where it asked.
			for _, a := range addrs {
				c := rig.DialUDPFrom(t, l.Client, a.String())
				var session string
				for i := range 20 {
					_, from, err := c.Ask()
					if err != nil {
						t.Fatalf("%v, request %d: %v", a, i+1, err)
					}
					if session == "" {
						session = from
					}
					if from != session {
						t.Errorf("%v: the session was %s and is now %s", a, session, from)
					}
				}
			}
			if n := p.Status(t).Connections; n != int64(len(addrs)) {
				t.Errorf("%d sessions of %d clients", n, len(addrs))
			}

			alternate(t, l, "0.0.0.0:0", addrs[2], addrs[4], addrs[0])
			alternate(t, l, "[::]:0", addrs[3], addrs[5], addrs[1])
			if n := p.Status(t).Connections; n != int64(2*len(addrs)) {
				t.Errorf("%d sessions of %d and two clients", n, len(addrs))
			}
			if n := unwanted(t, l.Client) - before; n != 0 {
				t.Errorf("the client got %d datagrams for no socket of its", n)
			}
			locals := map[netip.Addr]int{}
			for _, c := range p.Conns(t) {
				locals[c.Local.Addr()]++
			}
			for _, a := range addrs {
				if locals[a.Addr()] != 2 {
					t.Errorf("%d sessions are listed for %v", locals[a.Addr()], a)
				}
			}
		})
	}
}

// alternate asks addresses in turn from one socket that is not connected.
func alternate(t *testing.T, l *lab.Lab, local string, addrs ...netip.AddrPort) {
	t.Helper()
	c := rig.ListenUDP(t, l.Client, local)
	defer c.Close()
	sessions := map[netip.AddrPort]string{}
	buf := make([]byte, 256)
	for i := range 20 * len(addrs) {
		a := addrs[i%len(addrs)]
		what := fmt.Sprintf("request-%d", i)
		if _, err := c.WriteToUDPAddrPort([]byte(what), a); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(rig.Patience))
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatalf("asked %v: %v", a, err)
		}
		if got := netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); got != a {
			t.Errorf("asked %v, was answered by %v", a, got)
		}
		f := strings.Fields(string(buf[:n]))
		if len(f) != 3 || f[2] != what {
			t.Fatalf("the answer to %s is %q", what, buf[:n])
		}
		if sessions[a] == "" {
			for other, s := range sessions {
				if s == f[1] {
					t.Errorf("%v and %v share a session", other, a)
				}
			}
			sessions[a] = f[1]
		}
		if sessions[a] != f[1] {
			t.Errorf("%v: the session was %s and is now %s", a, sessions[a], f[1])
		}
	}
}
