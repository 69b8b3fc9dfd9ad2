package main

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/lab"
)

// With no local port left, clients that come are dropped and counted; those that have
// a session keep it, each its own, and there is room again when some end.
func TestLabUDPLocalPorts(t *testing.T) {
	t.Parallel()
	const ports, refused = 40, 10
	l := lab.New(t)
	answerUDP(t, listenUDP(t, l.Backend1, "10.78.0.11:9001"), teller("one"))
	answerUDP(t, listenUDP(t, l.Backend2, "10.78.0.12:9001"), teller("two"))
	yaml := func(idle string) string {
		return udpConfig(labFront, "idle: "+idle, "balance: round-robin, check: {type: none}, passive: {failures: 3}",
			member("one", "10.78.0.11:9001"), member("two", "10.78.0.12:9001"))
	}
	p := startOn(t, l, yaml("1h"))
	l.Balancer.Set(t, "net.ipv4.tcp_max_tw_buckets", "0") // the test's own requests need ports too
	l.Balancer.Set(t, "net.ipv4.ip_local_port_range", fmt.Sprintf("40000 %d", 40000+ports-1))
	var list []*udpClient
	froms := map[string]bool{}
	none := func() float64 {
		return p.Metrics(t)[`poise_service_refused_total{reason="no_local_port",service="web"}`]
	}
	for {
		c := dialUDPFrom(t, l.Client, labFront)
		name, from, err := c.askFor(time.Second)
		if isTimeout(err) && none() == 1 {
			break
		}
		if err != nil || len(list) == ports {
			t.Fatalf("client %d: %v", len(list)+1, err)
		}
		port := netip.MustParseAddrPort(from).Port()
		if froms[name+from] || port < 40000 || port >= 40000+ports {
			t.Errorf("client %d is with %s as %s", len(list)+1, name, from)
		}
		froms[name+from] = true
		list = append(list, c)
	}
	// Sessions leave some to others.
	if len(list) < ports/2 {
		t.Errorf("%d sessions with %d ports", len(list), ports)
	}
	for range refused {
		dialUDPFrom(t, l.Client, labFront).Refused(t, p, "no_local_port")
	}
	// All at once: each gets what is for it.
	for range 3 {
		for i, c := range list {
			if _, err := fmt.Fprintf(c, "client-%d", i); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range list {
			got := string(c.receive(t)[0])
			var name, from, what string
			if _, err := fmt.Sscan(got, &name, &from, &what); err != nil || what != fmt.Sprintf("client-%d", i) || !froms[name+from] {
				t.Errorf("client %d got %q", i, got)
			}
		}
	}
	for _, name := range []string{"one", "two"} {
		if b := p.Backend(t, "web", name); b.State != "up" || b.Connections == 0 {
			t.Errorf("%+v", b)
		}
	}
	p.MustReload(t, yaml("300ms"))
	half := len(list) / 2
	for _, c := range list[:half] { // these take up the new limit
		if _, _, err := c.Ask(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "half of them to end", func() bool { return p.Status(t).Connections == int64(len(list)-half) })
	if _, _, err := dialUDPFrom(t, l.Client, labFront).Ask(); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}
