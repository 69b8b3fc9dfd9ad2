package udp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// knotZone has a name for everybody, one that tells who answers, and one whose answer
// does not fit a datagram.
const knotZone = `$ORIGIN example.org.
$TTL 60
@     SOA ns.example.org. admin.example.org. 1 3600 600 86400 60
@     NS  ns
ns    A   192.0.2.1
www   A   192.0.2.80
www   AAAA 2001:db8::80
who   TXT "%s"
%s`

// startKnot starts a real DNS server, authoritative for example.org.
func startKnot(t *testing.T, name, addr string) *rig.Server {
	t.Helper()
	path := rig.Program(t, "knotd")
	dir := t.TempDir()
	large := ""
	for i := range 40 {
		large += fmt.Sprintf("large TXT \"%s %d\"\n", strings.Repeat("x", 100), i)
	}
	at := netip.MustParseAddrPort(addr)
	for file, text := range map[string]string{
		"zone": fmt.Sprintf(knotZone, name, large),
		"knot.conf": fmt.Sprintf(`
server:
    listen: %s@%d
    rundir: %[3]q
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: %[3]q
log:
  - target: stderr
    any: warning
zone:
  - domain: example.org
    storage: %[3]q
    file: zone
    zonefile-sync: -1
    journal-content: none
`, at.Addr(), at.Port(), dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return rig.StartServer(t, exec.Command(path, "-c", filepath.Join(dir, "knot.conf")), syscall.SIGKILL,
		func() bool { return strings.Contains(dig(addr, "www", "A"), "192.0.2.80") })
}

// dig asks for a name in example.org and returns the data of the answer.
func dig(addr, name, kind string, flags ...string) string {
	at := netip.MustParseAddrPort(addr)
	args := append([]string{"@" + at.Addr().String(), "-p", strconv.Itoa(int(at.Port())), "+short", "+time=1", "+retry=0", name + ".example.org", kind}, flags...)
	out, _ := exec.Command("kdig", args...).Output()
	return strings.TrimSpace(string(out))
}

// dnsperf asks as fast as the servers answer for a while, and returns how many
// questions were answered. None may be lost, and every answer has to be the right one.
func dnsperf(t *testing.T, addr string, seconds int, flags ...string) int {
	t.Helper()
	at := netip.MustParseAddrPort(addr)
	questions := filepath.Join(t.TempDir(), "questions")
	if err := os.WriteFile(questions, []byte("www.example.org A\nwww.example.org AAAA\nexample.org SOA\nwho.example.org TXT\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"-s", at.Addr().String(), "-p", strconv.Itoa(int(at.Port())), "-d", questions, "-l", strconv.Itoa(seconds),
		"-c", "20", "-q", "60", "-Q", "10000", "-t", "10",
	}, flags...)
	out, err := exec.Command("dnsperf", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dnsperf: %v\n%s", err, out)
	}
	number := func(what string) int {
		t.Helper()
		m := regexp.MustCompile(what + `:\s+(\d+)`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("dnsperf says nothing of %s:\n%s", what, out)
		}
		n, _ := strconv.Atoi(string(m[1]))
		return n
	}
	sent, completed, lost := number("Queries sent"), number("Queries completed"), number("Queries lost")
	if lost != 0 || completed != sent || completed == 0 || !strings.Contains(string(out), fmt.Sprintf("NOERROR %d (100.00%%)", completed)) {
		t.Errorf("%d of %d were lost:\n%s", lost, sent, out)
	}
	return completed
}

// A real DNS server, two of it: UDP and TCP on one port, checks that ask for a record,
// and not one question lost, while the configuration is reloaded and after one of them
// has been killed.
func TestKnot(t *testing.T) {
	for _, program := range []string{"kdig", "dnsperf"} {
		rig.Program(t, program)
	}
	one, two := rig.UDPAddr(t), rig.UDPAddr(t)
	startKnot(t, "one", one)
	second := startKnot(t, "two", two)
	listen := rig.UDPAddr(t)
	yaml := func(replies int) string {
		return fmt.Sprintf(`
services:
  dns: {protocol: udp, listen: [%[1]q], pool: dns, udp: {replies: %[2]d, idle: 1s}}
  dns-tcp: {listen: [%[1]q], pool: dns}
pools:
  dns:
    balance: round-robin
    check: {type: dns, interval: 200ms, fast_interval: 100ms, down_interval: 200ms, rise: 1, fall: 2, dns: {name: www.example.org, answer: 192.0.2.80}}
    backends: [%[3]s, %[4]s]
`, listen, replies, rig.Member("one", one), rig.Member("two", two))
	}
	p := rig.Start(t, yaml(1))

	if got := dig(listen, "www", "AAAA"); got != "2001:db8::80" {
		t.Errorf("%q", got)
	}
	if got := dig(listen, "www", "A", "+tcp"); got != "192.0.2.80" {
		t.Errorf("over TCP: %q", got)
	}
	// Cut off over UDP, asked again over TCP, on the same port.
	if n := strings.Count(dig(listen, "large", "TXT"), "xxx"+" "); n != 40 {
		t.Errorf("%d records of 40", n)
	}
	who := map[string]bool{}
	for range 4 {
		who[dig(listen, "who", "TXT")] = true
	}
	if !who[`"one"`] || !who[`"two"`] {
		t.Errorf("answered by %v", who)
	}

	var reloading sync.WaitGroup
	reloading.Go(func() { // in the middle of it
		time.Sleep(time.Second)
		p.Write(t, yaml(0))
		p.Signal(syscall.SIGHUP)
		time.Sleep(500 * time.Millisecond)
		p.Write(t, yaml(1))
		p.Signal(syscall.SIGHUP)
	})
	udp := dnsperf(t, listen, 3)
	reloading.Wait()
	tcp := dnsperf(t, listen, 1, "-m", "tcp")
	t.Logf("%d questions over UDP, %d over TCP", udp, tcp)
	if p.Backend(t, "dns", "one").Total == 0 || p.Backend(t, "dns", "two").Total == 0 {
		t.Error("one of them has not been asked")
	}
	m := p.Metrics(t)
	if n := m.Sum("poise_udp_dropped_total"); n != 0 {
		t.Errorf("%v were dropped", n)
	}
	if n := m[`poise_service_datagrams_total{direction="out",service="dns"}`]; int(n) < udp {
		t.Errorf("%v answers are counted", n)
	}

	second.Kill()
	rig.Eventually(t, "it to be down", func() bool { return p.Backend(t, "dns", "two").State != "up" })
	dnsperf(t, listen, 1)
	startKnot(t, "two", two)
	rig.Eventually(t, "it to be up", func() bool { return p.Backend(t, "dns", "two").State == "up" })
	rig.Eventually(t, "it to be asked", func() bool { return dig(listen, "who", "TXT") == `"two"` })
	rig.Eventually(t, "sessions to end", func() bool { return p.Status(t).Connections == 0 })
}
