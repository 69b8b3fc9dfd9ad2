package reload

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// An rsyslog is a real syslog server in a process of its own.
type rsyslog struct {
	addr, file string
}

func startRsyslog(t *testing.T) *rsyslog {
	t.Helper()
	path := rig.Program(t, "rsyslogd")
	dir := t.TempDir()
	r := &rsyslog{addr: rig.UDPAddr(t), file: filepath.Join(dir, "messages")}
	host, port, _ := strings.Cut(r.addr, ":")
	config := filepath.Join(dir, "rsyslog.conf")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`
global(workDirectory=%q)
module(load="imudp")
input(type="imudp" address=%q port=%q ruleset="all" rcvbufSize="1m")
template(name="line" type="string" string="%%syslogtag%%%%msg%%\n")
ruleset(name="all") { action(type="omfile" file=%q template="line" flushOnTXEnd="on") }
`, dir, host, port, r.file)), 0o644); err != nil {
		t.Fatal(err)
	}
	probe := rig.DialUDP(t, r.addr)
	rig.StartServer(t, exec.Command(path, "-n", "-f", config, "-i", filepath.Join(dir, "pid")), syscall.SIGKILL, func() bool {
		_, _ = probe.Write([]byte("<13>Oct 11 22:14:15 host probe: hello"))
		return len(r.lines(t)) > 0
	})
	return r
}

// lines returns what it has written.
func (r *rsyslog) lines(t *testing.T) (list []string) {
	t.Helper()
	b, err := os.ReadFile(r.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// A real syslog server, two of it, each with its share of one sender's messages: every
// message arrives once, through reloads too. logger(1) is a sender like any other.
func TestRsyslog(t *testing.T) {
	t.Parallel()
	servers := []*rsyslog{startRsyslog(t), startRsyslog(t)}
	listen := rig.UDPAddr(t)
	yaml := func(interval string) string {
		return fmt.Sprintf(`
services: {syslog: {protocol: udp, listen: [%q], pool: collectors, udp: {spray: true}}}
pools:
  collectors:
    balance: round-robin
    check: {type: none}
    slow_start: %s
    backends: [%s, %s]
`, listen, interval, rig.Member("one", servers[0].addr), rig.Member("two", servers[1].addr))
	}
	p := rig.Start(t, yaml("0s"))
	c := rig.DialUDP(t, listen)
	const messages = 2000
	for i := range messages {
		if _, err := fmt.Fprintf(c, "<13>Oct 11 22:14:15 host app[1]: message %d.", i); err != nil {
			t.Fatal(err)
		}
		if i%500 == 250 {
			p.MustReload(t, yaml(fmt.Sprintf("%ds", i)))
		}
		if i%20 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	host, port, _ := strings.Cut(listen, ":")
	logger := exec.Command(rig.Program(t, "logger"), "-n", host, "-P", port, "-d", "--rfc3164", "-t", "app", fmt.Sprintf("message %d.", messages))
	if out, err := logger.CombinedOutput(); err != nil {
		t.Errorf("logger: %v\n%s", err, out)
	}

	got := map[string]int{}
	rig.Eventually(t, "all messages", func() bool {
		clear(got)
		for _, r := range servers {
			for _, line := range r.lines(t) {
				if _, text, ok := strings.Cut(line, " message "); ok {
					got[text]++
				}
			}
		}
		return len(got) > messages
	})
	for text, n := range got {
		if n != 1 {
			t.Errorf("message %s arrived %d times", text, n)
		}
	}
	for i, r := range servers {
		if n := len(r.lines(t)); n < messages/2-10 {
			t.Errorf("server %d has %d messages", i+1, n)
		}
	}
	if s := p.Status(t).Services[0]; s.UDP.DatagramsIn != messages+1 || len(s.UDP.Dropped) != 0 {
		t.Errorf("%+v", s.UDP)
	}
}
