package lab

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
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

// Where all ports wait for a reply, newcomers are dropped and counted, and nothing that
// is late reaches a client that it is not for.
func TestLabUDPLateReplies(t *testing.T) {
	t.Parallel()
	for _, replies := range []int{0, 1} {
		t.Run(fmt.Sprintf("replies %d", replies), func(t *testing.T) {
			t.Parallel()
			const wave = 15 // three quarters of the ports, which sessions may have
			l := lab.New(t)
			backend := rig.ListenUDP(t, l.Backend1, "10.78.0.11:9001")
			answerLate(t, backend, 300*time.Millisecond)
			p := rig.StartOn(t, l, rig.UDPConfig(rig.LabFront, fmt.Sprintf("idle: 5s, replies: %d", replies),
				"check: {type: none}", rig.Member("one", "10.78.0.11:9001")))
			l.Balancer.Set(t, "net.ipv4.tcp_max_tw_buckets", "0") // the test's own requests need ports too
			l.Balancer.Set(t, "net.ipv4.ip_local_port_range", "40000 40019")
			p.MustReload(t, rig.UDPConfig(rig.LabFront, fmt.Sprintf("idle: 5s, replies: %d", replies),
				"check: {type: none}, max_connections: 1000", rig.Member("one", "10.78.0.11:9001"))) // reads the range anew
			var clients []*rig.UDPClient
			for i := range 2 * wave {
				c := rig.DialUDPFrom(t, l.Client, rig.LabFront)
				if _, err := fmt.Fprintf(c, "client %d", i); err != nil {
					t.Fatal(err)
				}
				clients = append(clients, c)
				if i == wave-1 {
					rig.Eventually(t, "the first wave to have sessions", func() bool { return p.Status(t).Connections == wave })
				}
			}
			answered := 0
			for i, c := range clients {
				for wait := time.Second; ; wait = 20 * time.Millisecond {
					_ = c.SetReadDeadline(time.Now().Add(wait / time.Duration(1+i/wave*9)))
					buf := make([]byte, 64)
					n, err := c.Read(buf)
					if err != nil {
						break
					}
					answered++
					if want := fmt.Sprintf("client %d", i); string(buf[:n]) != want {
						t.Errorf("client %d got what is for %q", i, buf[:n])
					}
				}
			}
			refused := p.Metrics(t)[`poise_service_refused_total{reason="no_local_port",service="web"}`]
			if answered < wave || float64(answered)+refused != 2*wave {
				t.Errorf("%d of %d are answered and %v refused", answered, 2*wave, refused)
			}
		})
	}
}

// answerLate sends back what comes, each after the same time, until the test ends.
func answerLate(t *testing.T, c *net.UDPConn, after time.Duration) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			buf := make([]byte, 1500)
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			serving.Go(func() {
				time.Sleep(after)
				_, _ = c.WriteToUDPAddrPort(buf[:n], from)
			})
		}
	})
	t.Cleanup(func() {
		c.Close()
		serving.Wait()
	})
}
