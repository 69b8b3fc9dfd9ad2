package lab

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// Case O-44: a server on this host is down whose port is one that the kernel chooses
// from, so that now and then a connect to it meets itself. That is a refused one: the
// next backend is tried, the failure is counted, and the port stays free for the server.
func TestLabConnectMeetsItself(t *testing.T) {
	t.Parallel()
	const ports, clients = "40000 40019", 60 // the kernel prefers the ten even ones
	l := lab.New(t)
	well := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, func(c net.Conn, _ <-chan struct{}) {
		_, _ = io.ReadFull(c, make([]byte, len("SECRET")))
		_, _ = io.WriteString(c, "well") // and ends first: the few ports are free again at once
	})
	ways := []struct{ name, dead, keys string }{
		{"IPv4", "127.0.0.1:40004", ""},
		{"IPv6", "[::1]:40004", ""},
		{"source", "127.0.0.1:40004", "source: 127.0.0.1, "},
		{"PROXY header", "127.0.0.1:40004", "send_proxy: v2, "},
		{"name", "localhost:40004", ""},
		{"address of a link", lab.BackAddr.String() + ":40004", ""},
	}
	var services, pools strings.Builder
	for i, w := range ways {
		fmt.Fprintf(&services, "  s%d: {listen: [\"10.77.0.10:700%d\"], pool: dead%d}\n", i, i, i)
		fmt.Fprintf(&pools, "  dead%d: {%sbackends: [%s]}\n", i, w.keys, rig.Member("dead", w.dead))
	}
	services.WriteString("  both: {listen: [\"10.77.0.10:7010\"], pool: both}\n")
	fmt.Fprintf(&pools, "  both: {balance: first, backends: [%s, %s]}\n", rig.Member("dead", ways[0].dead), rig.Member("well", well))
	var p *rig.Proc
	l.Balancer.Set(t, "net.ipv4.ip_local_port_range", ports)
	l.Balancer.Set(t, "net.ipv4.tcp_tw_reuse", "1")
	p = rig.StartOn(t, l, "defaults: {pools: {check: {type: none}, passive: {failures: 0}, retry_budget: {percent: 100}}}\nservices:\n"+
		services.String()+"pools:\n"+pools.String())
	ask := func(addr string) string {
		c, err := l.Client.Dial(netip.Addr{}, addr, rig.Patience)
		if (rig.Reading{Err: err}).Reset() {
			return "" // before connect has returned
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "SECRET")
		_ = c.SetReadDeadline(time.Now().Add(rig.Patience))
		b := make([]byte, 100)
		n, _ := c.Read(b)
		return string(b[:n])
	}
	for i, w := range ways {
		for range clients {
			if s := ask(fmt.Sprintf("10.77.0.10:700%d", i)); s != "" {
				t.Fatalf("%s: a client got %q, of itself", w.name, s)
			}
		}
		// A connection of this test to the admin page may have the server's port too.
		if listener, err := l.Balancer.Listen(w.dead); err == nil {
			listener.Close()
		} else if list := metThemselves(t, l.Balancer); len(list) > 0 {
			t.Errorf("%s: the server cannot start: %v; %q", w.name, err, list)
		}
		if n := p.Metrics(t).Sum("poise_backend_connect_failures_total", `pool="dead`+fmt.Sprint(i)+`"`, `reason="refused"`); n < clients {
			t.Errorf("%s: %v of %d were refused", w.name, n, clients)
		}
	}
	for range clients {
		if s := ask("10.77.0.10:7010"); s != "well" {
			t.Fatalf("a client got %q, and not the answer of the other backend", s)
		}
	}
}

// metThemselves lists the TCP sockets of a host whose both ends are one.
func metThemselves(t *testing.T, h *lab.Host) (list []string) {
	h.Do(func() {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) > 3 && f[1] == f[2] {
					list = append(list, line)
				}
			}
		}
	})
	return list
}
