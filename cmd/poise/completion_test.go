package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// Names are completed by asking the daemon; a daemon that does not answer must
// not make a shell wait.
func TestCompleteNames(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	p := start(t, weights(addr(t), a, b, 100, 100))
	complete := func(args ...string) string {
		t.Helper()
		began := time.Now()
		stdout, _, code := cli(t, append([]string{"__complete"}, args...)...)
		if code != 0 || time.Since(began) > patience/2 {
			t.Fatalf("%v: exit code %d after %v\n%s", args, code, time.Since(began), stdout)
		}
		offered, _, _ := strings.Cut(stdout, ":4\n") // ShellCompDirectiveNoFileComp
		return strings.Join(strings.Fields(offered), " ")
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"web/a web/b", []string{"drain", "--socket", p.socket(), ""}},
		{"web/b", []string{"ready", "-c", p.config(), "web/b"}},
		{"", []string{"maint", "--socket", p.socket(), "x"}},
		{"web/a", []string{"weight", "--socket", p.socket(), "web/a"}},
		{"", []string{"weight", "--socket", p.socket(), "web/a", ""}},
		{"", []string{"drain", "--socket", p.socket(), "web/a", ""}},
		{"web", []string{"conns", "--socket", p.socket(), "--pool", ""}},
		{"a b", []string{"conns", "--socket", p.socket(), "--backend", ""}},
		{"", []string{"conns", "--socket", p.socket(), "--pool", "other", "--backend", ""}},
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
