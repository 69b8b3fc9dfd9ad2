package reload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// shares makes n connections one after the other and returns how many each
// backend got.
func shares(t *testing.T, listen string, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		name, err := rig.Ask(listen)
		if err != nil {
			t.Fatal(err)
		}
		got[name]++
	}
	return got
}

func TestMaintCloses(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.Weighted(listen, a, b, 100, 100))
	of := map[string][]*rig.Client{}
	for range 10 {
		c := rig.Dial(t, listen)
		name := c.MustAsk(t)
		of[name] = append(of[name], c)
	}
	if said := p.Operate(t, "maint", "web/a"); said != "web/a is in maintenance, 5 connections were closed" {
		t.Error(said)
	}
	rig.WantClosed(t, of["a"])
	for _, c := range of["b"] {
		c.MustAsk(t)
	}
	if got := shares(t, listen, 6); got["a"] != 0 {
		t.Errorf("%v", got)
	}
	rig.Eventually(t, "5 lines in the access log", func() bool { return strings.Count(p.Stdout(), "/drained ") == 5 })
	if n := p.Metrics(t)[`poise_sessions_total{outcome="drained",service="web"}`]; n != 5 {
		t.Errorf("%v are counted", n)
	}

	// The last one may go too; the operator is warned.
	_, stderr, code := rig.CLI(t, "drain", "web/b", "--socket", p.Socket())
	if code != 0 || stderr != "warning: pool web has no backend left to send connections to\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if _, err := rig.Ask(listen); err == nil {
		t.Error("a backend answers")
	}
	p.Operate(t, "ready", "web/b")
	shares(t, listen, 3)
}

func TestWeightMovesShares(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.Weighted(listen, a, b, 100, 100))
	if said := p.Operate(t, "weight", "web/a", "300"); said != "web/a has the weight 300 (file: 100)" {
		t.Error(said)
	}
	if got := shares(t, listen, 40); got["a"] != 30 {
		t.Errorf("%v, want 3 of 4 for a", got)
	}
	stdout, _, _ := rig.CLI(t, "status", "--socket", p.Socket())
	if !strings.Contains(stdout, "300 (file: 100)") {
		t.Errorf("the status:\n%s", stdout)
	}
	if _, page, err := p.Get("/"); err != nil || !strings.Contains(string(page), "(file: 100)") {
		t.Errorf("the page, %v:\n%s", err, page)
	}
	if m := p.Metrics(t)[`poise_backend_weight{backend="a",pool="web"}`]; m != 300 {
		t.Errorf("the metric is %v", m)
	}
	p.Operate(t, "weight", "web/a", "0")
	if got := shares(t, listen, 10); got["a"] != 0 {
		t.Errorf("%v with a weight of 0", got)
	}
	if said := p.Operate(t, "weight", "web/a", "auto"); said != "web/a has the weight of the file, 100" {
		t.Error(said)
	}
	if got := shares(t, listen, 10); got["a"] != 5 {
		t.Errorf("%v, want half for a", got)
	}
}

// What ready says of a backend that its check is against is what the document shows.
func TestReadyButDown(t *testing.T) {
	t.Parallel()
	p := rig.Start(t, rig.WebConfig(rig.Addr(t), "", "check: {interval: 100ms, fast_interval: 100ms}", rig.Member("a", rig.Addr(t))))
	rig.Eventually(t, "it to be down", func() bool { return p.Backend(t, "web", "a").State == "down" })
	said := p.Operate(t, "ready", "web/a")
	document, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if shown := strings.Replace(said, "web/a", "pg/db1", 1); !strings.Contains(string(document), "\n"+shown+"\n") {
		t.Errorf("docs/operations.md does not show %q", shown)
	}
}

func TestOperatorErrors(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	p := rig.Start(t, rig.Weighted(rig.Addr(t), a, b, 100, 100))
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{1, `there is no pool "wbe"; did you mean "web"?`, []string{"drain", "wbe/a"}},
		{1, `there is no backend "xyz"; the backends are a, b`, []string{"ready", "web/xyz"}},
		{1, `there is no backend "xyz"; the backends are a, b`, []string{"maint", "web/xyz"}},
		{1, `there is no backend "x/y z"; the backends are a, b`, []string{"weight", "web/x/y z", "1"}},
		{1, `there is no pool "wbe"; did you mean "web"?`, []string{"conns", "--pool", "wbe"}},
		{2, `"a" is no backend; write POOL/BACKEND`, []string{"drain", "a"}},
		{2, `"web/" is no backend`, []string{"maint", "web/"}},
		{2, "accepts 1 arg(s)", []string{"ready"}},
		{2, "accepts 2 arg(s)", []string{"weight", "web/a"}},
		{2, `"65536" is no weight`, []string{"weight", "web/a", "65536"}},
		{2, `"-1" is no weight`, []string{"weight", "--", "web/a", "-1"}},
		{2, `"1.5" is no weight`, []string{"weight", "web/a", "1.5"}},
		{2, "--deadline has no effect", []string{"drain", "web/a", "--deadline", "1s"}},
		{2, "--deadline must be positive", []string{"drain", "web/a", "--wait", "--deadline", "0s"}},
		{2, "--close has no effect", []string{"drain", "web/a", "--wait", "--close"}},
		{2, "--limit must be from 1", []string{"conns", "--limit", "0"}},
	} {
		args := append([]string{c.args[0], "--socket", p.Socket()}, c.args[1:]...)
		stdout, stderr, code := rig.CLI(t, args...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
	for _, command := range [][]string{{"drain", "web/a"}, {"ready", "web/a"}, {"maint", "web/a"}, {"weight", "web/a", "1"}, {"conns"}} {
		socket := filepath.Join(t.TempDir(), "s")
		stdout, stderr, code := rig.CLI(t, append(command, "--socket", socket)...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, "poise is not running") {
			t.Errorf("%v without a daemon: exit code %d, %q, %q", command, code, stdout, stderr)
		}
	}
	if strings.Contains(p.Stderr(), "by=operator") {
		t.Error("something has changed")
	}
	if _, err := os.Stat(p.State()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state is kept: %v", err)
	}
}
