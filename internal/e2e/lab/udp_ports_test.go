package lab

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// With no local port left, clients that come are dropped and counted; those that have
// a session keep it, each its own, and there is room again when some end.
func TestLabUDPLocalPorts(t *testing.T) {
	t.Parallel()
	const ports, refused = 40, 10
	l := lab.New(t)
	rig.AnswerUDP(t, rig.ListenUDP(t, l.Backend1, "10.78.0.11:9001"), rig.Teller("one"))
	rig.AnswerUDP(t, rig.ListenUDP(t, l.Backend2, "10.78.0.12:9001"), rig.Teller("two"))
	yaml := func(idle string) string {
		return rig.UDPConfig(rig.LabFront, "idle: "+idle, "balance: round-robin, check: {type: none}, passive: {failures: 3}",
			rig.Member("one", "10.78.0.11:9001"), rig.Member("two", "10.78.0.12:9001"))
	}
	p := rig.StartOn(t, l, yaml("1h"))
	l.Balancer.Set(t, "net.ipv4.tcp_max_tw_buckets", "0") // the test's own requests need ports too
	l.Balancer.Set(t, "net.ipv4.ip_local_port_range", fmt.Sprintf("40000 %d", 40000+ports-1))
	var list []*rig.UDPClient
	froms := map[string]bool{}
	none := func() float64 {
		return p.Metrics(t)[`poise_service_refused_total{reason="no_local_port",service="web"}`]
	}
	for {
		c := rig.DialUDPFrom(t, l.Client, rig.LabFront)
		name, from, err := c.AskFor(time.Second)
		if rig.IsTimeout(err) && none() == 1 {
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
		rig.DialUDPFrom(t, l.Client, rig.LabFront).Refused(t, p, "no_local_port")
	}
	// All at once: each gets what is for it.
	for range 3 {
		for i, c := range list {
			if _, err := fmt.Fprintf(c, "client-%d", i); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range list {
			got := string(c.Receive(t)[0])
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
	rig.Eventually(t, "half of them to end", func() bool { return p.Status(t).Connections == int64(len(list)-half) })
	if _, _, err := rig.DialUDPFrom(t, l.Client, rig.LabFront).Ask(); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}
