package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		stdout, stderr, code := rig.CLI(t, args...)
		if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "poise v0.0.0-test") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"nonsense"},
		{"run", "--nonsense"},
		{"run", "argument"},
		{"check", "-c"},
		{"status", "--socket", "/a", "-c", "/b"},
		{"bench", "tcp"},
	} {
		stdout, stderr, code := rig.CLI(t, args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, "--help'.\n") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		stdout, stderr, code := rig.CLI(t, "completion", shell)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "poise") {
			t.Errorf("%s: exit code %d, %d bytes, %q", shell, code, len(stdout), stderr)
		}
	}
}

const twoProblems = `
services:
  web: {listen: [":8080"], pool: nobody}
pools:
  web:
    timout: 5s
    backends: ["127.0.0.1:9"]
`

func TestCheck(t *testing.T) {
	good := rig.WriteFile(t, `
services:
  web: {listen: [":8080"], pool: web}
pools:
  web: {backends: ["127.0.0.1:9"]}
`)
	stdout, stderr, code := rig.CLI(t, "check", "-c", good)
	if want := good + " is valid: 1 service, 1 pool\n"; code != 0 || stdout != want || stderr != "" {
		t.Errorf("valid: exit code %d, %q, %q", code, stdout, stderr)
	}

	// The file may do without -c, but not be given twice.
	stdout, stderr, code = rig.CLI(t, "check", good)
	if code != 0 || !strings.HasPrefix(stdout, good+" is valid") || stderr != "" {
		t.Errorf("as an argument: exit code %d, %q, %q", code, stdout, stderr)
	}
	for _, args := range [][]string{{"check", "-c", good, good}, {"check", good, good}} {
		if _, stderr, code = rig.CLI(t, args...); code != exitUsage || !strings.Contains(stderr, "--help'.\n") {
			t.Errorf("%v: exit code %d, %q", args, code, stderr)
		}
	}

	bad := rig.WriteFile(t, twoProblems)
	stdout, stderr, code = rig.CLI(t, "check", "-c", bad)
	if code != 1 || stdout != "" || !isTwoProblems(stderr, bad) {
		t.Errorf("invalid: exit code %d, %q\n%s", code, stdout, stderr)
	}

	missing := filepath.Join(t.TempDir(), "missing.yaml")
	stdout, stderr, code = rig.CLI(t, "check", "-c", missing)
	if code != 2 || stdout != "" || !strings.Contains(stderr, missing) {
		t.Errorf("missing: exit code %d, %q, %q", code, stdout, stderr)
	}
}

// isTwoProblems reports whether text is the problems of twoProblems and nothing else.
func isTwoProblems(text, path string) bool {
	return strings.Count(text, "\n") == 2 &&
		strings.Contains(text, path+":3:") && strings.Contains(text, "services.web.pool") &&
		strings.Contains(text, path+":6:") && strings.Contains(text, "pools.web.timout")
}

func TestRunRefusesInvalidConfiguration(t *testing.T) {
	bad := rig.WriteFile(t, twoProblems)
	stdout, stderr, code := rig.CLI(t, "run", "-c", bad)
	if code != 1 || stdout != "" || !isTwoProblems(stderr, bad) {
		t.Errorf("exit code %d, %q\n%s", code, stdout, stderr)
	}
	if _, stderr, code = rig.CLI(t, "run", "-c", "/nonexistent/poise.yaml"); code != 1 || !strings.Contains(stderr, "/nonexistent/poise.yaml") {
		t.Errorf("missing: exit code %d, %q", code, stderr)
	}
}

func TestStatus(t *testing.T) {
	b := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.OneService(listen, "least-conn", b))
	c := rig.Dial(t, listen)
	c.MustAsk(t)

	stdout, stderr, code := rig.CLI(t, "status", "--socket", p.Socket())
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	for _, want := range []string{"web", listen, "db1", b.Addr().String()} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}

	// The configuration knows the socket too.
	stdout, stderr, code = rig.CLI(t, "status", "--json", "-c", p.Config())
	var s admin.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v, %q\n%s", code, err, stderr, stdout)
	}
	if s.PID != p.PID() || s.Connections != 1 || s.Version != "v0.0.0-test" || s.State != "running" || !s.LastReload.OK {
		t.Errorf("%+v", s)
	}
	if len(s.Services) != 1 || s.Services[0].Name != "web" || s.Services[0].Connections != 1 || s.Services[0].Total != 1 ||
		s.Services[0].BytesIn != 6 || s.Services[0].BytesOut != 10 {
		t.Errorf("%+v", s.Services)
	}
	if len(s.Pools) != 1 || s.Pools[0].Eligible != 1 || len(s.Pools[0].Backends) != 1 {
		t.Fatalf("%+v", s.Pools)
	}
	if !strings.Contains(stdout, `"connect_p99_1m": `) || s.Pools[0].Backends[0].ConnectP99 <= 0 {
		t.Errorf("no percentiles of the last minute in\n%s", stdout)
	}
	if db := s.Pools[0].Backends[0]; db.Name != "db1" || db.State != "up" || db.Connections != 1 || db.Check == nil || !db.Check.Up {
		t.Errorf("%+v", db)
	}
}

// TestStatusOfPools: named pools are shown with the services that use them; a name that
// is none is an error that says what would be right.
func TestStatusOfPools(t *testing.T) {
	a, b := rig.Backend(t, "a1", loadgen.Behaviour{}), rig.Backend(t, "b1", loadgen.Behaviour{})
	p := rig.Start(t, fmt.Sprintf("services:\n  front: {listen: [%q], pool: alpha}\n  side: {listen: [%q], pool: beta}\npools:\n%s%s", rig.Addr(t), rig.Addr(t),
		rig.OnePool("alpha", "least-conn", "", a), rig.OnePool("beta", "least-conn", "", b)))
	for _, c := range []struct {
		args      []string
		has, lack string
	}{
		{[]string{"alpha"}, "pool alpha", "pool beta"},
		{[]string{"alpha"}, "front", "side"},
		{[]string{"beta"}, "side", "front"},
		{[]string{"beta", "alpha"}, "pool beta", "nothing"},
		{[]string{"--json", "beta"}, `"side"`, `"front"`},
	} {
		stdout, stderr, code := rig.CLI(t, append([]string{"status", "--socket", p.Socket()}, c.args...)...)
		if code != 0 || !strings.Contains(stdout, c.has) || strings.Contains(stdout, c.lack) {
			t.Errorf("%v: exit code %d, %s\n%s", c.args, code, stderr, stdout)
		}
	}
	for name, want := range map[string]string{
		"alhpa": "there is no pool \"alhpa\"; did you mean \"alpha\"?\n",
		"xyz":   "there is no pool \"xyz\"; there is alpha, beta\n",
	} {
		if stdout, stderr, code := rig.CLI(t, "status", "--socket", p.Socket(), name); code != exitFailure || stdout != "" || stderr != want {
			t.Errorf("%s: exit code %d, %q, %q", name, code, stdout, stderr)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	for _, command := range []string{"status", "reload"} {
		stdout, stderr, code := rig.CLI(t, command, "--socket", socket)
		if code != 1 || stdout != "" || !strings.Contains(stderr, socket) || strings.Contains(stderr, "--help") {
			t.Errorf("%s: exit code %d, %q, %q", command, code, stdout, stderr)
		}
		stdout, stderr, code = rig.CLI(t, command, "-c", rig.WriteFile(t, twoProblems))
		if code != 1 || stdout != "" || !strings.Contains(stderr, "pools.web.timout") || !strings.Contains(stderr, "--socket") {
			t.Errorf("%s, invalid configuration: exit code %d, %q, %q", command, code, stdout, stderr)
		}
	}
}
