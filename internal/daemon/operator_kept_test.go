package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/control"
)

// What has been said before a restart is in force when the first connection
// comes, and the file follows a change of the configuration.
func TestOperatorSurvivesRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	const state = `{"version": 1, "backends": [
	{"pool": "web", "backend": "a", "address": "127.0.0.1:1", "state": "maint", "since": "2026-01-02T03:04:05Z"},
	{"pool": "web", "backend": "b", "address": "127.0.0.1:2", "weight": 3, "file_weight": 49},
	{"pool": "gone", "backend": "c", "address": "127.0.0.1:3", "state": "drain"}]}`
	if err := os.WriteFile(path, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	d, log, _ := operatedDaemon(t, path)
	if s := must(t)(d.Backend("web", "a")); s.State != "maint" || !strings.Contains(s.Reason, "maint by the operator since") {
		t.Errorf("%+v", s)
	}
	if s := must(t)(d.Backend("web", "b")); s.Weight != 50 {
		t.Errorf("edited while it was down: %+v\n%s", s, log)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		entries := keptOrders(t, path)
		if len(entries) == 1 && entries[0].Backend == "a" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the file has %+v", entries)
		}
	}
}

// keptOrders is what the operator's file says.
func keptOrders(t *testing.T, path string) []control.Order {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Backends []control.Order }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return file.Backends
}

func TestOperatorCannotKeep(t *testing.T) {
	d, log, _ := operatedDaemon(t, "/proc/nowhere/state.json")
	s := must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"}))
	if s.State != "drain" || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "/proc/nowhere") {
		t.Errorf("%+v", s)
	}
	d.logging.close() // writes what waits
	if !strings.Contains(log.String(), "is not kept") {
		t.Errorf("the log:\n%s", log)
	}
	d, _, _ = operatedDaemon(t, "")
	if s := must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"})); s.State != "drain" || len(s.Warnings) != 0 {
		t.Errorf("without a file: %+v", s)
	}
}

// A backend that comes from a file of backends stays drained while it is not
// listed for a moment, and through a restart.
func TestOperatorOfDiscovered(t *testing.T) {
	dir, listen, http := t.TempDir(), reserve(t), reserve(t)
	list := filepath.Join(dir, "list")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(list+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() *Daemon {
		t.Helper()
		d, err := start(Options{Stdout: io.Discard, Stderr: io.Discard, File: parse(t, fmt.Sprintf(`
admin: {socket: %s/s, http: %q, state: %s/state.json}
services:
  web: {listen: [%q], pool: web}
pools:
  web: {check: {type: none}, backends_file: %s}
`, dir, http, dir, listen, list))})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	eventually := func(d *Daemon, name, want string) {
		t.Helper()
		var got string
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			s, err := d.Backend("web", name)
			if got = s.State; err != nil {
				got = "unknown"
			}
			if got == want {
				return
			}
		}
		t.Fatalf("%s is %s, want %s", name, got, want)
	}
	const both, one = "127.0.0.1:1 name=a weight=10\n127.0.0.1:2 name=b\n", "127.0.0.1:2 name=b\n"
	write(both)
	d := begin()
	must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"}))
	if s := must(t)(d.SetWeight("web", "a", pointer(3))); s.Weight != 3 || s.FileWeight != 10 {
		t.Errorf("%+v", s)
	}
	write(one)
	eventually(d, "a", "unknown")
	write(both)
	eventually(d, "a", "drain")
	write(one)
	eventually(d, "a", "unknown")
	d.close()
	d = begin()
	defer func() { d.close() }()
	eventually(d, "a", "unknown")
	write(both)
	eventually(d, "a", "drain")
	if s := must(t)(d.Backend("web", "a")); s.Weight != 3 {
		t.Errorf("%+v", s)
	}
	write("127.0.0.1:1 name=a weight=11\n" + one) // edited there
	for end := time.Now().Add(20 * time.Second); must(t)(d.Backend("web", "a")).Weight != 11; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the edited weight does not count")
		}
	}
	eventually(d, "a", "drain")
}
