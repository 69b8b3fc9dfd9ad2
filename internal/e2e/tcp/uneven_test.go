package tcp

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// workers is how many requests at once a backend of this experiment works on, as a
// database with as many processes does; the others wait.
const workers = 8

// laborious starts a backend that takes so long for each request.
func laborious(t *testing.T, name string, takes time.Duration) (addr string) {
	busy := make(chan struct{}, workers)
	return rig.Serve(t, func(c *net.TCPConn, done <-chan struct{}) {
		for lines := bufio.NewReader(c); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			select {
			case busy <- struct{}{}:
			case <-done:
				return
			}
			time.Sleep(takes)
			<-busy
			if _, err := fmt.Fprintf(c, "%s\n%s", name, line); err != nil {
				return
			}
		}
	})
}

// Mission: two backends answer in 40 ms, one in 80, one in 160, and one fails every
// call while it passes its checks; 50 clients. Round robin fills the slowest one's
// queue and all wait there; least-connections uses each for what it can do.
//
// What layer 4 can do about a backend that fails: one that refuses is left for
// another one, and no client notices. One that accepts and resets has perhaps had
// the request, which only the client knows to be safe to send again; those clients
// fail, until after passive.failures of them in a row, from three addresses at least,
// it is ejected, and one for each trial.
func TestUnevenBackends(t *testing.T) {
	slow := []string{
		rig.Member("fast1", laborious(t, "fast1", 40*time.Millisecond)),
		rig.Member("fast2", laborious(t, "fast2", 40*time.Millisecond)),
		rig.Member("medium", laborious(t, "medium", 80*time.Millisecond)),
		rig.Member("slow", laborious(t, "slow", 160*time.Millisecond)),
	}
	const clients, failures = 50, 5
	resets := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil { // a check sends nothing
			rig.Reset(c)
		}
	})
	run := func(balance, failing string) loadgen.Result {
		t.Helper()
		listen := rig.Addr(t)
		p := rig.Start(t, rig.WebConfig(listen, "", fmt.Sprintf("balance: %s, check: {interval: 200ms}, passive: {failures: %d, base: 1m}", balance, failures),
			append(slow[:4:4], rig.Member("failing", failing))...))
		if failing == resets {
			for _, from := range []string{"127.0.0.2", "127.0.0.3"} { // the load comes from one address
				for tries := 0; len(rig.SayFrom(t, from, listen, "ask\n", 1)) > 0; tries++ {
					if tries == 100 {
						t.Fatalf("%s never reached the failing backend", from)
					}
				}
			}
		}
		res, err := loadgen.Run(t.Context(), loadgen.Options{
			Addr: listen, Clients: clients, Duration: 6 * time.Second, PerConnection: 1, Size: 64, Timeout: rig.Patience,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-11s %4.0f/s, p50 %v, p95 %v, %d failed", balance, res.PerSecond(), res.Latency.P50, res.Latency.P95, res.Failed)
		if failing == resets {
			if b := p.Backend(t, "web", "failing"); b.State != "ejected" || b.Check == nil || !b.Check.Up {
				t.Errorf("%+v, %+v", b, b.Check)
			}
		}
		p.Stop(t)
		return res
	}
	blind, seeing := run("round-robin", resets), run("least-conn", resets)
	// Those that were on their way when the last failure was counted fail as well.
	for _, res := range []loadgen.Result{blind, seeing} {
		if res.Failed > failures+clients {
			t.Errorf("%d requests failed: %+v", res.Failed, res.Errors)
		}
	}
	if blind.PerSecond()*1.5 > seeing.PerSecond() {
		t.Errorf("least-conn serves %.0f/s, round-robin %.0f/s", seeing.PerSecond(), blind.PerSecond())
	}
	if seeing.Latency.P95 > blind.Latency.P95 {
		t.Errorf("p95 is %v with least-conn, %v with round-robin", seeing.Latency.P95, blind.Latency.P95)
	}
	if res := run("least-conn", rig.Addr(t)); res.Failed != 0 {
		t.Errorf("%d requests failed though a retry would have helped: %+v", res.Failed, res.Errors)
	}
}
