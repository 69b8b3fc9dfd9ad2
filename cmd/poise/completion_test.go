package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Names are completed by asking the daemon; a daemon that does not answer must
// not make a shell wait.
func TestCompleteNames(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	p := rig.Start(t, rig.Weighted(rig.Addr(t), a, b, 100, 100))
	complete := func(args ...string) string {
		t.Helper()
		began := time.Now()
		stdout, _, code := rig.CLI(t, append([]string{"__complete"}, args...)...)
		if code != 0 || time.Since(began) > rig.Patience/2 {
			t.Fatalf("%v: exit code %d after %v\n%s", args, code, time.Since(began), stdout)
		}
		offered, _, _ := strings.Cut(stdout, ":4\n") // ShellCompDirectiveNoFileComp
		return strings.Join(strings.Fields(offered), " ")
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"web/a web/b", []string{"drain", "--socket", p.Socket(), ""}},
		{"web/b", []string{"ready", "-c", p.Config(), "web/b"}},
		{"", []string{"maint", "--socket", p.Socket(), "x"}},
		{"web/a", []string{"weight", "--socket", p.Socket(), "web/a"}},
		{"", []string{"weight", "--socket", p.Socket(), "web/a", ""}},
		{"", []string{"drain", "--socket", p.Socket(), "web/a", ""}},
		{"web", []string{"conns", "--socket", p.Socket(), "--pool", ""}},
		{"a b", []string{"conns", "--socket", p.Socket(), "--backend", ""}},
		{"", []string{"conns", "--socket", p.Socket(), "--pool", "other", "--backend", ""}},
		{"", []string{"drain", "--socket", filepath.Join(t.TempDir(), "s"), ""}},
	} {
		if got := complete(c.args...); got != c.want {
			t.Errorf("%v offers %q, want %q", c.args, got, c.want)
		}
	}

	silent := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if got := complete("drain", "--socket", silent, ""); got != "" {
		t.Errorf("a silent daemon offers %q", got)
	}
}
