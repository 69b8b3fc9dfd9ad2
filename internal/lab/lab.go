// Package lab lays out a small network of Linux network namespaces. It is for
// tests, and nothing but tests may import it.
//
//	l := lab.New(t)
//	l.Balancer.Do(func() { ... })        // sockets and processes made here are of that host
//	l.Balancer.Run(t, "nft", "add ...")  // a command, to its end
//
// The namespaces have no names. They live as long as the test's process, or a
// process that was started in one of them, keeps them open: however a test ends,
// nothing of it is left on the machine.
package lab

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"
)

// Addresses of the hosts. Every IPv4 address has an IPv6 twin that ends alike:
// fd77::10 is Front, fd78::11 is Backend1.
var (
	ClientAddr   = netip.MustParseAddr("10.77.0.3")
	ProxyAddr    = netip.MustParseAddr("10.77.0.2") // of the client's host as well
	FrontAddr    = netip.MustParseAddr("10.77.0.10")
	BackAddr     = netip.MustParseAddr("10.78.0.1")
	Backend1Addr = netip.MustParseAddr("10.78.0.11")
	Backend2Addr = netip.MustParseAddr("10.78.0.12")
)

// Names of the hosts' links.
const (
	FrontLink = "front" // of the client and of the balancer
	BackLink  = "back"  // of the backends and of the balancer, where it is a bridge
)

// A Lab is four hosts. The client and the balancer share a network, and so do the
// balancer and the backends:
//
//	Client 10.77.0.3, .2 ── 10.77.0.10 Balancer 10.78.0.1 ─┬─ 10.78.0.11 Backend1
//	                                                       └─ 10.78.0.12 Backend2
//
// Nobody routes: a client cannot reach a backend but through the balancer.
type Lab struct {
	Client, Balancer, Backend1, Backend2 *Host
}

// New lays out a lab, which goes when the test ends. It needs root and the
// program ip; without them the test is skipped, or fails if POISE_TEST_ALL is
// set.
func New(t testing.TB) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		unavailable(t, "network namespaces need the program ip (iproute2)")
	}
	l := &Lab{newHost(t), newHost(t), newHost(t), newHost(t)}

	l.Client.link(t, FrontLink, l.Balancer, FrontLink)
	l.Client.address(t, FrontLink, ClientAddr, ProxyAddr)
	l.Balancer.address(t, FrontLink, FrontAddr)

	l.Balancer.Run(t, "ip", "link", "add", BackLink, "type", "bridge")
	for i, b := range []*Host{l.Backend1, l.Backend2} {
		port := []string{"be1", "be2"}[i]
		b.link(t, BackLink, l.Balancer, port)
		l.Balancer.Run(t, "ip", "link", "set", port, "master", BackLink, "up")
		b.address(t, BackLink, []netip.Addr{Backend1Addr, Backend2Addr}[i])
	}
	l.Balancer.address(t, BackLink, BackAddr)
	return l
}

// unavailable ends a test that cannot run here.
func unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("POISE_TEST_ALL") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// link joins two hosts by a cable: a pair of veth devices.
func (h *Host) link(t testing.TB, name string, peer *Host, peerName string) {
	t.Helper()
	h.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", peerName, "netns", peer.path())
}

// address brings a link up with the addresses and their IPv6 twins.
func (h *Host) address(t testing.TB, link string, addrs ...netip.Addr) {
	t.Helper()
	for _, a := range addrs {
		h.Run(t, "ip", "addr", "add", netip.PrefixFrom(a, 24).String(), "dev", link)
		// Nobody else is there to have the address: it can be used at once.
		h.Run(t, "ip", "addr", "add", netip.PrefixFrom(Twin(a), 64).String(), "dev", link, "nodad")
	}
	// The kernel gives the link an address of its own, but only after a second or
	// two. Without one nobody is asked for the neighbour of a packet whose source is
	// another host's address (RFC 4861 section 7.2.2).
	own := netip.MustParseAddr("fe80::").As16()
	own[15] = addrs[0].As4()[3]
	h.Run(t, "ip", "addr", "add", netip.PrefixFrom(netip.AddrFrom16(own), 64).String(), "dev", link, "nodad")
	h.Run(t, "ip", "link", "set", link, "up")
}
