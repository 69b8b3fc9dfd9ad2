package lab

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// transparentScript sets up, and takes away, the routing that source: client needs.
const transparentScript = "../../../scripts/transparent.sh"

// seer answers each connection with the address it comes from, and then echoes.
func seer(c net.Conn, done <-chan struct{}) {
	if _, err := fmt.Fprintf(c, "%s\n", c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()); err == nil {
		rig.Echo(c, done)
	}
}

// seen connects from an address of a host and returns the address that the backend
// sees, once some bytes have been there and back.
func seen(h *lab.Host, local netip.Addr, addr string) (netip.Addr, error) {
	c, err := h.Dial(local, addr, rig.Patience)
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return seenOn(c)
}

func seenOn(c net.Conn) (netip.Addr, error) {
	_ = c.SetDeadline(time.Now().Add(rig.Patience))
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(c, b); err != nil {
			return netip.Addr{}, err
		}
	}
	sent := strings.Repeat("ping", 10_000)
	go func() { _, _ = io.WriteString(c, sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
		return netip.Addr{}, fmt.Errorf("the echo is wrong: %w", err)
	}
	return netip.ParseAddr(strings.TrimSpace(string(line)))
}

// routeBack has the backends of a lab answer through the balancer. For clients that
// are not its own neighbours it looks for them with its link-local address, which is a
// second or two in coming.
func routeBack(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, h := range []*lab.Host{l.Balancer, l.Backend1, l.Backend2} {
		rig.Eventually(t, "the link-local addresses", func() bool { return h.Run(t, "ip", "-6", "addr", "show", "tentative") == "" })
	}
	for _, h := range []*lab.Host{l.Backend1, l.Backend2} {
		h.Run(t, "ip", "route", "add", "10.77.0.0/24", "via", lab.BackAddr.String())
		h.Run(t, "ip", "-6", "route", "add", "fd77::/64", "via", lab.Twin(lab.BackAddr).String())
	}
}

// routing is what the script may have changed on a host.
func routing(t *testing.T, h *lab.Host) string {
	t.Helper()
	var all []string
	for _, args := range []string{
		"ip -4 rule", "ip -6 rule", "ip -4 route show table all type local default", "ip -6 route show table all type local default", "nft list ruleset",
	} {
		f := strings.Fields(args)
		all = append(all, h.Run(t, f[0], f[1:]...))
	}
	return strings.Join(all, "--\n")
}

// With source: client backends see the clients themselves, over TCP and UDP, IPv4 and
// IPv6, and what they answer comes back through the rules of the script.
func TestLabSourceClient(t *testing.T) {
	t.Parallel()
	rig.Program(t, "nft")
	for _, args := range [][]string{nil, {"--mark", "0x10", "--table", "99", "--backends", "10.78.0.0/24", "fd78::11"}} {
		t.Run(fmt.Sprintf("%q", args), func(t *testing.T) {
			l := lab.New(t)
			routeBack(t, l)
			be4, be6 := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, seer), rig.ServeAt(t, l.Backend1, lab.Twin(lab.Backend1Addr), seer)
			rig.AnswerUDP(t, rig.ListenUDP(t, l.Backend1, be4), rig.Teller("be"))
			rig.AnswerUDP(t, rig.ListenUDP(t, l.Backend1, be6), rig.Teller("be"))
			p := rig.StartOn(t, l, fmt.Sprintf(`
defaults: {pools: {source: client, check: {type: none}, passive: {failures: 0}}, services: {timeouts: {connect: 500ms, connect_total: 500ms}}}
services:
  tcp4: {listen: ["10.77.0.10:7000"], pool: four}
  tcp6: {listen: ["[fd77::10]:7000"], pool: six}
  udp4: {listen: ["10.77.0.10:7000"], pool: four, protocol: udp, udp: {idle: 1h}}
  udp6: {listen: ["[fd77::10]:7000"], pool: six, protocol: udp, udp: {idle: 1h}}
pools:
  four: {backends: [%q]}
  six: {backends: [%q]}
`, be4, be6))
			if c := rig.CapabilitiesOf(t, p); c&(1<<unix.CAP_NET_ADMIN) == 0 {
				t.Errorf("its capabilities are %x", c)
			}

			before := routing(t, l.Balancer)
			if a, err := seen(l.Client, netip.Addr{}, "10.77.0.10:7000"); err == nil {
				t.Errorf("without the rules a backend sees %v", a)
			}
			for range 2 { // it may be repeated
				l.Balancer.Run(t, transparentScript, append([]string{"up"}, args...)...)
			}
			for _, client := range []netip.Addr{lab.ClientAddr, lab.ProxyAddr, lab.Twin(lab.ClientAddr), lab.Twin(lab.ProxyAddr)} {
				addr := "10.77.0.10:7000"
				if client.Is6() {
					addr = "[fd77::10]:7000"
				}
				if a, err := seen(l.Client, client, addr); a != client || err != nil {
					t.Errorf("of %v the backend sees %v, %v", client, a, err)
				}
				c := dialUDPAt(t, l.Client, client, addr)
				for range 3 {
					_, from, err := c.Ask()
					if err != nil {
						t.Fatal(err)
					}
					if a := netip.MustParseAddrPort(from).Addr(); a != client {
						t.Errorf("over UDP: of %v the backend sees %v", client, a)
					}
				}
			}
			seenWithout(t, l)
			l.Balancer.Run(t, transparentScript, append([]string{"down"}, args...)...)
			if after := routing(t, l.Balancer); after != before {
				t.Errorf("it leaves behind\n%s\nwhere there was\n%s", after, before)
			}
			if a, err := seen(l.Client, netip.Addr{}, "10.77.0.10:7000"); err == nil {
				t.Errorf("after the rules have gone a backend sees %v", a)
			}
		})
	}
}

// seenWithout has a client of which backends must not see the address, over TCP and UDP
// alike: theirs would be another host of that address.
func seenWithout(t *testing.T, l *lab.Lab) {
	t.Helper()
	client, addr := netip.MustParseAddr("169.254.7.7"), "10.77.0.10:7000"
	l.Client.Run(t, "ip", "addr", "add", client.String()+"/32", "dev", lab.FrontLink)
	l.Balancer.Run(t, "ip", "route", "add", client.String(), "dev", lab.FrontLink)
	if a, err := seen(l.Client, client, addr); a != lab.BackAddr || err != nil {
		t.Errorf("of %v the backend sees %v, %v", client, a, err)
	}
	_, from, err := dialUDPAt(t, l.Client, client, addr).Ask()
	if err != nil {
		t.Fatal(err)
	}
	if a := netip.MustParseAddrPort(from).Addr(); a != lab.BackAddr {
		t.Errorf("over UDP: of %v the backend sees %v", client, a)
	}
	l.Balancer.Run(t, "ip", "route", "del", client.String(), "dev", lab.FrontLink)
}

// dialUDPAt is rig.DialUDPFrom from one of the host's addresses.
func dialUDPAt(t *testing.T, h *lab.Host, local netip.Addr, addr string) *rig.UDPClient {
	t.Helper()
	var c *net.UDPConn
	var err error
	h.Do(func() {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &rig.UDPClient{UDPConn: c}
}

// A process without the capability does not start, and says why. One that has given it
// up refuses a reload that would need it.
func TestSourceClientNeedsCapability(t *testing.T) {
	if os.Getuid() != 0 {
		rig.Unavailable(t, "a capability can only be taken from root")
	}
	path := rig.Program(t, "setpriv")
	listen := rig.Addr(t)
	be := rig.Serve(t, func(c *net.TCPConn, done <-chan struct{}) { rig.Echo(c, done) })
	with, without := rig.WebConfig(listen, "", "source: client", rig.Member("be", be)), rig.WebConfig(listen, "", "", rig.Member("be", be))
	const want = "pool web: source: client takes CAP_NET_ADMIN"
	p := rig.Launch(t, with, func(c *exec.Cmd) {
		c.Args = append([]string{path, "--bounding-set", "-net_admin", "--", c.Path}, c.Args[1:]...)
		c.Path = path
	})
	if code := p.Wait(t); code != 1 || strings.Count(p.Stderr(), want) != 1 {
		t.Errorf("exit code %d, %s", code, p.Stderr())
	}

	p = rig.Start(t, without)
	if c := rig.CapabilitiesOf(t, p); c&(1<<unix.CAP_NET_ADMIN) != 0 {
		t.Errorf("its capabilities are %x", c)
	}
	if res := p.Reload(t, with); res.OK || !strings.Contains(res.Error, want) {
		t.Errorf("%+v", res)
	}
	c := rig.Connect(t, listen)
	_, _ = io.WriteString(c, "ping")
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Errorf("after the reload was refused: %v", err)
	}
}

// Each pool has a source address of its own, for TCP and for UDP.
func TestLabSourceOfPool(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	l.Balancer.Run(t, "ip", "addr", "add", "10.78.0.2/24", "dev", lab.BackLink)
	l.Balancer.Run(t, "ip", "addr", "add", "fd78::2/64", "dev", lab.BackLink, "nodad")
	be4, be6 := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, seer), rig.ServeAt(t, l.Backend1, lab.Twin(lab.Backend1Addr), seer)
	rig.AnswerUDP(t, rig.ListenUDP(t, l.Backend1, be4), rig.Teller("be"))
	rig.AnswerUDP(t, rig.ListenUDP(t, l.Backend1, be6), rig.Teller("be"))
	pools := []struct{ source, backend string }{
		{"10.78.0.1", be4}, {"10.78.0.2", be4}, {"fd78::1", be6}, {"fd78::2", be6},
	}
	var services, list strings.Builder
	for i, p := range pools {
		fmt.Fprintf(&services, "  t%d: {listen: [\"10.77.0.10:700%d\"], pool: p%d}\n", i, i, i)
		fmt.Fprintf(&services, "  u%d: {listen: [\"10.77.0.10:700%d\"], pool: p%d, protocol: udp}\n", i, i, i)
		fmt.Fprintf(&list, "  p%d: {source: %q, check: {type: tcp, interval: 200ms}, backends: [%q]}\n", i, p.source, p.backend)
	}
	p := rig.StartOn(t, l, "services:\n"+services.String()+"pools:\n"+list.String())
	for i, pool := range pools {
		addr, want := fmt.Sprintf("10.77.0.10:700%d", i), netip.MustParseAddr(pool.source)
		if a, err := seen(l.Client, netip.Addr{}, addr); a != want || err != nil {
			t.Errorf("the source is %v; the backend sees %v, %v", want, a, err)
		}
		_, from, err := rig.DialUDPFrom(t, l.Client, addr).Ask()
		if err != nil {
			t.Fatal(err)
		}
		if a := netip.MustParseAddrPort(from).Addr(); a != want {
			t.Errorf("over UDP: the source is %v; the backend sees %v", want, a)
		}
	}
	if n := p.Metrics(t).Sum("poise_udp_dropped_total"); n != 0 {
		t.Errorf("%v were dropped", n)
	}
}

// The port is chosen last, so that one client can have more connections than there
// are local ports: as many to each backend.
func TestLabSourceClientPorts(t *testing.T) {
	t.Parallel()
	rig.Program(t, "nft")
	const ports = 20
	l := lab.New(t)
	routeBack(t, l)
	one, two := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, seer), rig.ServeAt(t, l.Backend2, lab.Backend2Addr, seer)
	p := rig.StartOn(t, l, rig.WebConfig(rig.LabFront, "", "source: client, balance: round-robin, check: {type: none}", rig.Member("one", one), rig.Member("two", two)))
	l.Balancer.Run(t, transparentScript, "up")
	l.Balancer.Set(t, "net.ipv4.ip_local_port_range", fmt.Sprintf("40000 %d", 40000+ports-1))
	const connections = 2 * (ports - 4)
	for i := range connections {
		c, err := l.Client.Dial(netip.Addr{}, rig.LabFront, rig.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if a, err := seenOn(c); a != lab.ClientAddr || err != nil {
			t.Fatalf("connection %d: %v, %v", i+1, a, err)
		}
	}
	if n := p.Status(t).Connections; n != connections {
		t.Errorf("%d connections are open", n)
	}
	if a, err := seen(l.Client, lab.ProxyAddr, rig.LabFront); a != lab.ProxyAddr || err != nil {
		t.Errorf("another client: %v, %v", a, err)
	}
}
