package reload

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// passing has the process get sockets as a service manager passes them, sd_listen_fds(3).
// Its own number, which it must be told, a shell knows that becomes it.
func passing(files ...*os.File) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.ExtraFiles = files
		script := fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d exec "$0" "$@"`, len(files))
		c.Args = append([]string{"sh", "-c", script, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}
}

// fileOf returns a duplicate of a socket.
func fileOf(t *testing.T, s interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// managed opens a listener and a socket of UDP at one address, as a service manager
// would.
func managed(t *testing.T) (at string, tcp, udp *os.File) {
	t.Helper()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	for range 20 { // another process may be faster
		at = rig.UDPAddr(t)
		l, err := plain.Listen(t.Context(), "tcp", at)
		if err != nil {
			continue
		}
		t.Cleanup(func() { l.Close() })
		c, err := rig.TryListenUDP(nil, at)
		if err != nil {
			continue
		}
		t.Cleanup(func() { c.Close() })
		return at, fileOf(t, l.(*net.TCPListener)), fileOf(t, c)
	}
	t.Fatal("no free port")
	return "", nil, nil
}

// Sockets of the service manager outlive the process: no client is refused while there
// is none, and the next one serves those that have waited. More workers than sockets
// there are do no harm.
func TestPassedSockets(t *testing.T) {
	t.Parallel()
	at, tcp, udp := managed(t)
	db, told := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.StartTeller(t, "dns1")
	const services = `
services:
  db: {listen: [%[1]q], pool: db}
  dns: {listen: [%[1]q], pool: dns, protocol: udp, udp: {idle: 1s}}`
	const pools = `
runtime: {workers: 3, drain: 1s}
pools:
  db: {backends: [%q], check: {type: none}}
  dns: {backends: [%q], check: {type: none}}
`
	yaml := fmt.Sprintf(services, at) + fmt.Sprintf(pools, db.Addr(), told)
	var waiting *rig.Client
	var asker *rig.UDPClient
	for i := range 2 {
		p := rig.Start(t, yaml, passing(tcp, udp))
		if waiting != nil {
			waiting.MustAsk(t)
			buf := make([]byte, 100)
			_ = asker.SetReadDeadline(time.Now().Add(rig.Patience))
			if n, err := asker.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), " early") {
				t.Fatalf("process %d answers %q, %v to what had waited", i, buf[:n], err)
			}
		}
		asked := map[string]int{}
		for range 20 {
			name, err := rig.Ask(at)
			if err != nil {
				t.Fatal(err)
			}
			asked[name]++
			name, _ = rig.DialUDP(t, at).MustAsk(t)
			asked[name]++
		}
		if asked["db1"] != 20 || asked["dns1"] != 20 {
			t.Errorf("answers of %v", asked)
		}
		p.Stop(t)
		if waiting, asker = rig.Dial(t, at), rig.DialUDP(t, at); i < 1 {
			if _, err := asker.Write([]byte("early")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A reload drops a socket of the service manager and has it again, and says who waits
// meanwhile.
func TestPassedSocketsReload(t *testing.T) {
	t.Parallel()
	at, tcp, udp := managed(t)
	other := rig.UDPAddr(t)
	db, told := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.StartTeller(t, "dns1")
	config := func(at string) string {
		return fmt.Sprintf(`
services:
  db: {listen: [%[1]q], pool: db}
  dns: {listen: [%[1]q], pool: dns, protocol: udp, udp: {idle: 1s}}
pools:
  db: {backends: [%[2]q], check: {type: none}}
  dns: {backends: [%[3]q], check: {type: none}}
`, at, db.Addr(), told)
	}
	p := rig.Start(t, config(at), passing(tcp, udp))
	if name, err := rig.Ask(at); name != "db1" {
		t.Fatal(name, err)
	}
	for range 2 {
		r := p.Reload(t, config(other))
		if want := "the service manager passes a socket at tcp " + at; !r.OK || len(r.Warnings) != 2 || !strings.HasPrefix(r.Warnings[0], want) {
			t.Fatalf("%v", r)
		}
		if name, err := rig.Ask(other); name != "db1" {
			t.Fatal(name, err)
		}
		rig.Eventually(t, "the old socket of UDP to be closed", func() bool { return len(socketsOf(t, p, at)) == 2 })
		waiting := rig.Dial(t, at)
		if r = p.Reload(t, config(at)); !r.OK || len(r.Warnings) != 0 {
			t.Fatalf("%v", r)
		}
		waiting.MustAsk(t)
		rig.DialUDP(t, at).MustAsk(t)
	}
}

// socketsOf lists the process's descriptors that are bound to an address.
func socketsOf(t *testing.T, p *rig.Proc, addr string) (list []string) {
	t.Helper()
	a := netip.MustParseAddrPort(addr)
	local := fmt.Sprintf(" 0100007F:%04X ", a.Port())
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "udp"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.PID(), table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); strings.Contains(line, local+"00000000:0000 ") {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd/", p.PID())
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if link, err := os.Readlink(dir + e.Name()); err == nil && inodes[link] {
			list = append(list, e.Name())
		}
	}
	return list
}

// What cannot be used is said, and harms nothing.
func TestPassedSocketsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	at, tcp, _ := managed(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	unix, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@poise-passed-" + at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	p := rig.Start(t, rig.OneService(at, "round-robin", db), passing(null, fileOf(t, unix), tcp))
	if name, err := rig.Ask(at); name != "db1" {
		t.Error(name, err)
	}
	if n := strings.Count(p.Stderr(), "that cannot be used"); n != 2 {
		t.Errorf("%d warnings in\n%s", n, p.Stderr())
	}

	more := rig.Launch(t, "runtime: {workers: 1}\n"+rig.OneService(at, "round-robin", db), passing(tcp, tcp))
	if code := more.Wait(t); code == 0 || !strings.Contains(more.Stderr(), "the service manager passes 2 sockets for it") {
		t.Errorf("exit code %d\n%s", code, more.Stderr())
	}
}
