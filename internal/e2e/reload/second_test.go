package reload

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// withSocket makes a process listen for commands at another path.
func withSocket(t *testing.T, path string) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		own := filepath.Join(filepath.Dir(c.Args[len(c.Args)-1]), "conf.d", "admin.yaml")
		if err := os.WriteFile(own, []byte("admin: {http: \"\", state: \"\", socket: "+path+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// notStarted expects a process to end with 1 and to name the cause.
func notStarted(t *testing.T, what string, p *rig.Proc, cause ...string) {
	t.Helper()
	if code := p.Wait(t); code != 1 {
		t.Errorf("%s: exit code %d", what, code)
	}
	for _, c := range cause {
		if !strings.Contains(p.Stderr(), c) {
			t.Errorf("%s: %q is not in\n%s", what, c, p.Stderr())
		}
	}
}

// Case O-51: a second instance on the same ports or the same socket is refused, and
// the first one does not notice. After kill -9 a start just works.
func TestSecondInstance(t *testing.T) {
	t.Parallel()
	db, listen, dns := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t), rig.UDPAddr(t)
	tcp := rig.OneService(listen, "round-robin", db)
	udp := rig.UDPConfig(dns, "replies: 1", "check: {type: none}", rig.Member("a", rig.StartTeller(t, "a")))
	first, firstUDP := rig.Start(t, tcp), rig.Start(t, udp)
	serves := func(what string) {
		t.Helper()
		for range 20 {
			if name, err := rig.Ask(listen); err != nil || name != "db1" {
				t.Errorf("%s: %q, %v", what, name, err)
			}
			rig.DialUDP(t, dns).MustAsk(t)
		}
	}

	second := rig.Launch(t, tcp)
	serves("while a second one starts")
	notStarted(t, "the same TCP port", second, listen, "in use")
	notStarted(t, "the same UDP port", rig.Launch(t, udp), dns, "in use")
	other := rig.OneService(rig.Addr(t), "round-robin", db)
	notStarted(t, "the same socket", rig.Launch(t, other, withSocket(t, first.Socket())), first.Socket(), "another poise is running")
	serves("after that")
	if text, _, code := rig.CLI(t, "status", "--socket", first.Socket()); code != 0 {
		t.Errorf("poise status: exit code %d\n%s", code, text)
	}

	for _, p := range []*rig.Proc{first, firstUDP} {
		p.Signal(syscall.SIGKILL)
		p.Wait(t)
	}
	if _, err := os.Lstat(first.Socket()); err != nil {
		t.Fatalf("what is to be in the way is not: %v", err)
	}
	for old, yaml := range map[*rig.Proc]string{first: tcp, firstUDP: udp} {
		again := rig.Launch(t, yaml, rig.InFolderOf(old))
		rig.Eventually(t, "it to serve again", func() bool { return again.Gone() || old.Readyz() == http.StatusOK })
	}
	serves("after kill -9")
}

// Case O-51: only a dead socket is ever removed.
func TestSocketPathTaken(t *testing.T) {
	t.Parallel()
	yaml := rig.OneService(rig.Addr(t), "round-robin", rig.Backend(t, "db1", loadgen.Behaviour{}))
	dir, err := os.MkdirTemp(rig.Scratch, "taken-")
	if err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	const text = "a letter\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{"a file": file, "a folder": dir, "a link to a file": link} {
		notStarted(t, what, rig.Launch(t, yaml, withSocket(t, path)), path, "not a socket")
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != text {
		t.Errorf("the file: %q, %v", got, err)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link: %q, %v", to, err)
	}

	deep := filepath.Join(dir, "missing", "s")
	p := rig.Launch(t, yaml, withSocket(t, deep))
	rig.Eventually(t, "the folder to be made", func() bool { _, _, code := rig.CLI(t, "status", "--socket", deep); return code == 0 })
	p.Stop(t)
}

// Case O-51: standard input, output and error are closed. What is opened in their
// place is not written to as if it was them.
func TestStandardDescriptorsClosed(t *testing.T) {
	t.Parallel()
	db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
	p := rig.Start(t, rig.OneService(listen, "round-robin", db), func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `exec "$0" "$@" <&- >&- 2>&-`, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	})
	for range 20 {
		if name, err := rig.Ask(listen); err != nil || name != "db1" {
			t.Errorf("%q, %v", name, err)
		}
	}
	p.MustReload(t, rig.OneService(listen, "round-robin", db))
	p.Stop(t)
}
