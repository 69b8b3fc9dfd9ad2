package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// limitDescriptors starts a process with so few descriptors, for good.
func limitDescriptors(n int) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, n), c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}
}

// Case O-34: out of descriptors. Nothing spins, nobody else is to blame, and all
// is well again when they are back.
func TestOutOfDescriptors(t *testing.T) {
	db := backend(t, "db1", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, fmt.Sprintf("runtime: {workers: 2}\nservices:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen,
		onePool("web", "round-robin", "    check: {type: tcp, interval: 100ms, fast_interval: 100ms}\n", db)), limitDescriptors(64))
	if !strings.Contains(p.Stderr(), "descriptor_limit=64") {
		t.Error("the log does not say what the limit is")
	}

	var clients []*client
	for range 100 {
		clients = append(clients, dial(t, listen))
	}
	if name := clients[0].MustAsk(t); name != "db1" {
		t.Errorf("%s served", name)
	}
	eventually(t, "accepting to fail", func() bool { return p.Metrics(t).Sum("poise_accept_errors_total") > 0 })
	p.stderr.reset()
	errorsBefore, cpu, began := p.Metrics(t).Sum("poise_accept_errors_total"), p.cpu(t), time.Now()
	probes := p.Backend(t, "web", "db1").Check.Probes
	for time.Since(began) < 3*time.Second {
		time.Sleep(200 * time.Millisecond)
		if b := p.Backend(t, "web", "db1"); b.State != "up" {
			t.Errorf("%+v", b)
		}
	}
	took := time.Since(began)
	// Accepting in a tight loop would take a whole CPU.
	if used := p.cpu(t) - cpu; used > took/3 {
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
	eventually(t, "a new connection to work", func() bool { _, err := ask(listen); return err == nil })
}

// A limit under which hardly a client could be served is an error at the start, and for
// a reload that brings it about. It names a number, and that number is enough.
func TestTooFewDescriptors(t *testing.T) {
	t.Parallel()
	db, listen := backend(t, "db1", loadgen.Behaviour{}), addr(t)
	const workers = "runtime: {workers: 2}\n"
	yaml := workers + oneService(listen, "round-robin", db)
	said := regexp.MustCompile(`this configuration takes (\d+) at the least.*LimitNOFILE=`)
	least := 0
	for _, n := range []int{24, 32} {
		p := launch(t, yaml, limitDescriptors(n))
		if code := p.Wait(t); code != 1 {
			t.Errorf("a limit of %d: exit code %d", n, code)
		}
		m := said.FindStringSubmatch(p.Stderr())
		if m == nil {
			t.Fatalf("a limit of %d:\n%s", n, p.Stderr())
		}
		least, _ = strconv.Atoi(m[1])
	}
	p := launch(t, yaml, limitDescriptors(least-1))
	if code := p.Wait(t); code != 1 {
		t.Errorf("one fewer than it takes: exit code %d", code)
	}
	p = start(t, yaml, limitDescriptors(least))
	for range 8 {
		if name := dial(t, listen).MustAsk(t); name != "db1" {
			t.Errorf("%s served", name)
		}
	}
	if code, _, err := p.get("/metrics"); code != http.StatusOK {
		t.Errorf("/metrics: %d, %v", code, err)
	}
	more := strings.Replace(yaml, fmt.Sprintf("%q", listen), fmt.Sprintf("%q, %q", listen, addr(t)), 1)
	if res := p.Reload(t, more); res.OK || !said.MatchString(res.Error) {
		t.Errorf("a reload that takes more: %+v", res)
	}
}

// cpu returns the CPU time that the process has taken.
func (p *proc) cpu(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	if err != nil {
		t.Fatal(err)
	}
	// proc_pid_stat(5): utime and stime are fields 14 and 15, in ticks of 10 ms;
	// field 2, in parentheses, may have spaces in it.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[14-3]+" "+fields[15-3], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
