package reload

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-39: a reload that is refused changes nothing and can be seen everywhere.
func TestReloadRefused(t *testing.T) {
	db1, db2 := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Backend(t, "db2", loadgen.Behaviour{})
	listen := rig.Addr(t)
	good := rig.OneService(listen, "round-robin", db1)
	p := rig.Start(t, good)
	if m := p.Metrics(t); m["poise_config_last_reload_success"] != 1 {
		t.Error("the start is no success")
	}

	taken, err := net.Listen("tcp", rig.Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	// All of it is valid, and only the kernel knows that one address is taken.
	busy := fmt.Sprintf("log: {level: debug, access: %s/access.log}\nservices:\n  web: {listen: [%q], pool: web}\n  new: {listen: [%q, %q], pool: web}\npools:\n%s",
		p.Dir, listen, rig.Addr(t), taken.Addr(), rig.OnePool("web", "least-conn", "", db1, db2))
	for name, c := range map[string]struct{ yaml, reason string }{
		"typing error":  {strings.Replace(good, "balance:", "balanec:", 1), p.Config() + ":5:5: pools.web.balanec"},
		"no YAML":       {"services: [", p.Config() + ":1:"},
		"address taken": {busy, taken.Addr().String()},
	} {
		p.Write(t, c.yaml)
		stdout, stderr, code := rig.CLI(t, "reload", "--socket", p.Socket())
		if code != 1 || stdout != "" || !strings.Contains(stderr, c.reason) {
			t.Errorf("%s: exit code %d, %q, %q", name, code, stdout, stderr)
		}
		if m := p.Metrics(t); m["poise_config_last_reload_success"] != 0 {
			t.Errorf("%s: the metric knows nothing", name)
		}
		s := p.Status(t)
		if s.LastReload.OK || !strings.Contains(s.LastReload.Error, c.reason) || len(s.Services) != 1 || len(s.Pools[0].Backends) != 1 {
			t.Errorf("%s: %+v", name, s)
		}
		if n := strings.Count(p.Stderr(), "reload refused"); n != 1 || !strings.Contains(p.Stderr(), c.reason) {
			t.Errorf("%s: %d complaints in the log", name, n)
		}
		p.Log.Reset()
		for range 4 {
			if got, err := rig.Ask(listen); got != "db1" || err != nil {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
		p.MustReload(t, good)
		if m := p.Metrics(t); m["poise_config_last_reload_success"] != 1 {
			t.Errorf("%s: a good reload afterwards is no success", name)
		}
		p.Log.Reset()
	}
}

// A signal does what the command does.
func TestReloadBySignal(t *testing.T) {
	db1, db2 := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Backend(t, "db2", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.OneService(listen, "round-robin", db1))
	p.Write(t, rig.OneService(listen, "round-robin", db2))
	p.Signal(syscall.SIGHUP)
	rig.Eventually(t, "the other backend to be used", func() bool {
		name, err := rig.Ask(listen)
		if err != nil {
			t.Fatal(err)
		}
		return name == "db2"
	})
	p.Write(t, "nonsense: true\n")
	p.Signal(syscall.SIGHUP)
	rig.Eventually(t, "the refusal to be seen", func() bool {
		return p.Metrics(t)["poise_config_last_reload_success"] == 0 && strings.Contains(p.Stderr(), "nonsense")
	})
}

// Everything about the admin interface and the logs can change as well.
func TestReloadMovesInterfacesAndLogs(t *testing.T) {
	db1 := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	yaml := rig.OneService(listen, "round-robin", db1)
	p := rig.Start(t, yaml)
	if _, err := rig.Ask(listen); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the access log on standard output", func() bool { return strings.Count(p.Stdout(), " web web/db1 ") == 1 })

	old := *p
	p.HTTP = rig.Addr(t)
	socket := filepath.Join(p.Dir, "moved.sock")
	own := fmt.Sprintf("admin: {socket: %s, http: %q, state: %s}\n", socket, p.HTTP, p.State())
	if err := os.WriteFile(filepath.Join(p.Dir, "conf.d", "admin.yaml"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	logs := fmt.Sprintf("log: {level: debug, format: json, access: %s/access.log, access_format: json}\n", p.Dir)
	p.Write(t, logs+yaml)
	stdout, stderr, code := rig.CLI(t, "reload", "--socket", p.Socket())
	if code != 0 || strings.Count(stdout, "\n") != 6 || !strings.Contains(stdout, "admin: socket "+p.Socket()+" -> "+socket+"\n") {
		t.Fatalf("exit code %d, %q\n%s", code, stderr, stdout)
	}
	if p.Readyz() != 200 {
		t.Error("not ready at the new address")
	}
	rig.Eventually(t, "the old address to close", func() bool { return old.Readyz() == 0 })
	rig.Eventually(t, "the old socket to go", func() bool { _, err := os.Stat(old.Socket()); return os.IsNotExist(err) })
	if _, stderr, code := rig.CLI(t, "status", "--socket", socket); code != 0 {
		t.Errorf("status at the new socket: exit code %d, %s", code, stderr)
	}
	if !strings.Contains(p.Stderr(), `"msg":"reloaded"`) {
		t.Errorf("no JSON in the log")
	}

	access := filepath.Join(p.Dir, "access.log")
	lines := func(path string) int {
		b, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(b), `"outcome":"ok"`)
	}
	if _, err := rig.Ask(listen); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a line in the file", func() bool { return lines(access) == 1 })

	// As logrotate does it, even though the configuration is broken now.
	if err := os.Rename(access, access+".1"); err != nil {
		t.Fatal(err)
	}
	p.Write(t, "nonsense: true\n")
	p.Signal(syscall.SIGHUP)
	rig.Eventually(t, "the file to be opened anew", func() bool { _, err := os.Stat(access); return err == nil })
	if _, err := rig.Ask(listen); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a line in the new file", func() bool { return lines(access) == 1 && lines(access+".1") == 1 })
	if strings.Count(p.Stdout(), "\n") != 1 {
		t.Errorf("standard output:\n%s", p.Stdout())
	}
}

// The number of event loops is the one thing that needs a restart.
func TestReloadCannotChangeWorkers(t *testing.T) {
	db1 := rig.Backend(t, "db1", loadgen.Behaviour{})
	yaml := rig.OneService(rig.Addr(t), "round-robin", db1)
	p := rig.Start(t, "runtime: {workers: 2}\n"+yaml)
	for range 2 { // as long as it is so, it is said
		changes := p.MustReload(t, "runtime: {workers: 3}\n"+yaml)
		if len(changes) != 1 || !strings.Contains(changes[0], "restart") {
			t.Errorf("%q", changes)
		}
	}
	if changes := p.MustReload(t, "runtime: {workers: 2}\n"+yaml); len(changes) != 0 {
		t.Errorf("%q", changes)
	}
}
