package rig

import (
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/lab"
)

// Where the service and the backends of a lab listen. Nothing else is on its hosts, so the
// numbers can be fixed.
const (
	LabFront = "10.77.0.10:7000"
	LabPort  = "9001"
)

// StartOn is Start on the balancer of a lab.
func StartOn(t *testing.T, l *lab.Lab, yaml string, with ...func(*exec.Cmd)) *Proc {
	t.Helper()
	Binary(t) // built here, not there
	var p *Proc
	l.Balancer.Do(func() { p = Launch(t, yaml, with...) })
	p.HTTP = l.Balancer.Forward(t, p.HTTP)
	p.awaitReady(t)
	return p
}

// ServeAt is Serve on a host of a lab.
func ServeAt(t *testing.T, h *lab.Host, addr netip.Addr, handle func(c net.Conn, done <-chan struct{})) (address string) {
	t.Helper()
	l, err := h.Listen(net.JoinHostPort(addr.String(), LabPort))
	if err != nil {
		t.Fatal(err)
	}
	ServeOn(t, l, handle)
	return l.Addr().String()
}

// Echo returns every byte, and then the end.
func Echo(c net.Conn, _ <-chan struct{}) { _, _ = io.Copy(c, c) }

// Counter returns a counter of a host's network, such as Udp NoPorts or
// Icmp6OutDestUnreachs, as /proc/net/snmp and snmp6 call it.
func Counter(t *testing.T, h *lab.Host, group, name string) int {
	t.Helper()
	var names []string
	for line := range strings.Lines(h.Run(t, "cat", "/proc/net/snmp", "/proc/net/snmp6")) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == group+name {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if len(f) == 0 || f[0] != group+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i := range f {
			if names[i] == name {
				n, err := strconv.Atoi(f[i])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatalf("there is no counter %s %s", group, name)
	return 0
}

// DialUDPFrom connects a client on a host of a lab.
func DialUDPFrom(t *testing.T, h *lab.Host, addr string) *UDPClient {
	t.Helper()
	var c *net.UDPConn
	var err error
	h.Do(func() { c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &UDPClient{UDPConn: c}
}
