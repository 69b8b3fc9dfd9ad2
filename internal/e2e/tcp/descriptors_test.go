package tcp

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-34: out of descriptors. Nothing spins, no backend is blamed, and all is
// well again when they are back.
func TestOutOfDescriptors(t *testing.T) {
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, fmt.Sprintf("runtime: {workers: 2}\nservices:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen,
		rig.OnePool("web", "round-robin", "    check: {type: tcp, interval: 100ms, fast_interval: 100ms}\n", db)), rig.LimitDescriptors(64))
	if !strings.Contains(p.Stderr(), "descriptor_limit=64") {
		t.Error("the log does not say what the limit is")
	}

	var clients []*rig.Client
	for range 100 {
		clients = append(clients, rig.Dial(t, listen))
	}
	if name := clients[0].MustAsk(t); name != "db1" {
		t.Errorf("%s served", name)
	}
	rig.Eventually(t, "accepting to fail", func() bool { return p.Metrics(t).Sum("poise_accept_errors_total") > 0 })
	p.Log.Reset()
	errorsBefore, cpu, began := p.Metrics(t).Sum("poise_accept_errors_total"), p.CPU(t), time.Now()
	probes := p.Backend(t, "web", "db1").Check.Probes
	for time.Since(began) < 3*time.Second {
		time.Sleep(200 * time.Millisecond)
		if b := p.Backend(t, "web", "db1"); b.State != "up" {
			t.Errorf("%+v", b)
		}
	}
	took := time.Since(began)
	// Accepting in a tight loop would take a whole CPU.
	if used := p.CPU(t) - cpu; used > took/3 {
		t.Errorf("%v of CPU in %v", used, took)
	}
	if lines := strings.Count(p.Stderr(), "\n"); lines > 5*int(took/time.Second+1) {
		t.Errorf("%d lines in the log within %v", lines, took)
	}
	m := p.Metrics(t)
	if m.Sum("poise_accept_errors_total") <= errorsBefore {
		t.Error("the errors are not counted")
	}
	if n := m.Sum("poise_backend_connect_failures_total"); n != 0 {
		t.Errorf("%v failures are blamed on the backend", n)
	}
	if p.Backend(t, "web", "db1").Check.Probes == probes {
		t.Error("no probe was made")
	}

	for _, c := range clients {
		c.Close()
	}
	rig.Eventually(t, "a new connection to work", func() bool { _, err := rig.Ask(listen); return err == nil })
}

// A limit under which hardly a client could be served is an error at the start, and for
// a reload that brings it about. It names a number, and that number is enough.
func TestTooFewDescriptors(t *testing.T) {
	t.Parallel()
	db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
	const workers = "runtime: {workers: 2}\n"
	yaml := workers + rig.OneService(listen, "round-robin", db)
	said := regexp.MustCompile(`this configuration takes (\d+) at the least.*LimitNOFILE=`)
	least := 0
	for _, n := range []int{24, 32} {
		p := rig.Launch(t, yaml, rig.LimitDescriptors(n))
		if code := p.Wait(t); code != 1 {
			t.Errorf("a limit of %d: exit code %d", n, code)
		}
		m := said.FindStringSubmatch(p.Stderr())
		if m == nil {
			t.Fatalf("a limit of %d:\n%s", n, p.Stderr())
		}
		least, _ = strconv.Atoi(m[1])
	}
	p := rig.Launch(t, yaml, rig.LimitDescriptors(least-1))
	if code := p.Wait(t); code != 1 {
		t.Errorf("one fewer than it takes: exit code %d", code)
	}
	p = rig.Start(t, yaml, rig.LimitDescriptors(least))
	for range 8 {
		if name := rig.Dial(t, listen).MustAsk(t); name != "db1" {
			t.Errorf("%s served", name)
		}
	}
	if code, _, err := p.Get("/metrics"); code != http.StatusOK {
		t.Errorf("/metrics: %d, %v", code, err)
	}
	more := strings.Replace(yaml, fmt.Sprintf("%q", listen), fmt.Sprintf("%q, %q", listen, rig.Addr(t)), 1)
	if res := p.Reload(t, more); res.OK || !said.MatchString(res.Error) {
		t.Errorf("a reload that takes more: %+v", res)
	}
}
