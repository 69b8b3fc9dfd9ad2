package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/loadgen"
)

// operate runs a command of the operator, which has to succeed.
func (p *proc) operate(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := cli(t, append(args, "--socket", p.socket())...)
	if code != 0 || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
	}
	return strings.TrimSuffix(stdout, "\n")
}

// weights is a configuration of the pool web of two backends in turn.
func weights(listen string, a, b *loadgen.Backend, weightA, weightB int) string {
	return webConfig(listen, "", "balance: round-robin, check: {type: none}",
		member("a", a.Addr(), fmt.Sprintf("weight: %d", weightA)), member("b", b.Addr(), fmt.Sprintf("weight: %d", weightB)))
}

// shares makes n connections one after the other and returns how many each
// backend got.
func shares(t *testing.T, listen string, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		name, err := ask(listen)
		if err != nil {
			t.Fatal(err)
		}
		got[name]++
	}
	return got
}

// A backend is taken out and put back under load: nobody notices.
func TestDrainUnderLoad(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, weights(listen, a, b, 100, 100))
	held := map[string]*client{}
	for len(held) < 2 {
		c := dial(t, listen)
		held[c.MustAsk(t)] = c
	}
	l := startLoad(t, listen, 4)
	l.more(t, 50)
	for range 2 {
		if said := p.operate(t, "drain", "web/a"); !strings.Contains(said, "web/a gets no new connections") {
			t.Error(said)
		}
		drained := p.Backend(t, "web", "a")
		if drained.State != "drain" || drained.Operator != "drain" || !strings.Contains(drained.Reason, "drain by the operator since") {
			t.Errorf("%+v", drained)
		}
		eventually(t, "all but one connection to end", func() bool { return p.Backend(t, "web", "a").Connections == 1 })
		served := p.Backend(t, "web", "a").Total
		l.more(t, 50)
		if got := p.Backend(t, "web", "a"); got.Total != served || got.Connections != 1 {
			t.Errorf("%d connections while it drains, %d open", got.Total-served, got.Connections)
		}
		if name := held["a"].MustAsk(t); name != "a" {
			t.Errorf("the open connection is served by %s", name)
		}
		if said := p.operate(t, "ready", "web/a"); said != "web/a is ready" {
			t.Error(said)
		}
		l.more(t, 50)
		if got := p.Backend(t, "web", "a"); got.Total == served || got.State != "up" || got.Operator != "" {
			t.Errorf("it is back: %+v", got)
		}
	}
	l.end(t)
	if n := strings.Count(p.Stderr(), "by=operator"); n != 4 {
		t.Errorf("%d lines in the log, want 4", n)
	}
	if n := p.Metrics(t).Sum("poise_backend_state_changes_total", `author="operator"`, `backend="a"`); n != 4 {
		t.Errorf("%v changes are counted, want 4", n)
	}
}

func TestDrainWait(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, weights(listen, a, b, 100, 100))
	hold := func() *client {
		for {
			if c := dial(t, listen); c.MustAsk(t) == "a" {
				return c
			}
		}
	}
	c := hold()
	_, stderr, code := cli(t, "drain", "web/a", "--wait", "--deadline", "300ms", "--socket", p.socket())
	if code != 1 || !strings.Contains(stderr, "web/a is not drained after 300ms: 1 connections are open") {
		t.Errorf("the deadline: exit code %d, %q", code, stderr)
	}
	if c.MustAsk(t) != "a" || p.Backend(t, "web", "a").State != "drain" {
		t.Error("it does not go on draining")
	}

	// It ends with the last connection.
	type outcome struct {
		stdout, stderr string
		code           int
	}
	wait := func() <-chan outcome {
		done := make(chan outcome, 1)
		go func() {
			stdout, stderr, code := cli(t, "drain", "web/a", "--wait", "--socket", p.socket())
			done <- outcome{stdout, stderr, code}
		}()
		return done
	}
	done := wait()
	select {
	case o := <-done:
		t.Fatalf("it does not wait: %+v", o)
	case <-time.After(500 * time.Millisecond):
	}
	c.Close()
	if o := <-done; o.code != 0 || o.stdout != "web/a is drained: no connection is open\n" {
		t.Errorf("%+v", o)
	}
	// Nothing is open: at once.
	if said := p.operate(t, "drain", "web/a", "--wait", "--deadline", "1ms"); said != "web/a is drained: no connection is open" {
		t.Error(said)
	}

	// Somebody else changes his mind, or takes it out of the configuration.
	p.operate(t, "ready", "web/a")
	c = hold()
	done = wait()
	eventually(t, "the drain", func() bool { return p.Backend(t, "web", "a").State == "drain" })
	p.operate(t, "ready", "web/a")
	if o := <-done; o.code != 1 || !strings.Contains(o.stderr, "somebody has made it ready again") {
		t.Errorf("%+v", o)
	}
	done = wait()
	eventually(t, "the drain", func() bool { return p.Backend(t, "web", "a").State == "drain" })
	p.MustReload(t, webConfig(listen, "", "check: {type: none}", member("b", b.Addr())))
	if o := <-done; o.code != 1 || !strings.Contains(o.stderr, `there is no backend "a"; the backends are b`) {
		t.Errorf("%+v", o)
	}
	c.MustAsk(t)

	// At the deadline it may close.
	p.MustReload(t, weights(listen, a, b, 100, 100))
	c.Close()
	c = hold()
	if said := p.operate(t, "drain", "web/a", "--wait", "--deadline", "100ms", "--close"); said != "web/a is drained: 1 connections were closed after 100ms" {
		t.Error(said)
	}
	closed(t, []*client{c})
	eventually(t, "its line in the access log", func() bool { return strings.Contains(p.Stdout(), "/drained ") })
}

func TestMaintCloses(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, weights(listen, a, b, 100, 100))
	of := map[string][]*client{}
	for range 10 {
		c := dial(t, listen)
		name := c.MustAsk(t)
		of[name] = append(of[name], c)
	}
	if said := p.operate(t, "maint", "web/a"); said != "web/a is in maintenance, 5 connections were closed" {
		t.Error(said)
	}
	closed(t, of["a"])
	for _, c := range of["b"] {
		c.MustAsk(t)
	}
	if got := shares(t, listen, 6); got["a"] != 0 {
		t.Errorf("%v", got)
	}
	eventually(t, "5 lines in the access log", func() bool { return strings.Count(p.Stdout(), "/drained ") == 5 })
	if n := p.Metrics(t)[`poise_sessions_total{outcome="drained",service="web"}`]; n != 5 {
		t.Errorf("%v are counted", n)
	}

	// The last one may go too; whoever does it is warned.
	_, stderr, code := cli(t, "drain", "web/b", "--socket", p.socket())
	if code != 0 || stderr != "warning: pool web has no backend left to send connections to\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if _, err := ask(listen); err == nil {
		t.Error("somebody answers")
	}
	p.operate(t, "ready", "web/b")
	shares(t, listen, 3)
}

func TestWeightMovesShares(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, weights(listen, a, b, 100, 100))
	if said := p.operate(t, "weight", "web/a", "300"); said != "web/a has the weight 300 (file: 100)" {
		t.Error(said)
	}
	if got := shares(t, listen, 40); got["a"] != 30 {
		t.Errorf("%v, want 3 of 4 for a", got)
	}
	stdout, _, _ := cli(t, "status", "--socket", p.socket())
	if !strings.Contains(stdout, "300 (file: 100)") {
		t.Errorf("the status:\n%s", stdout)
	}
	if _, page, err := p.get("/"); err != nil || !strings.Contains(string(page), "(file: 100)") {
		t.Errorf("the page, %v:\n%s", err, page)
	}
	if m := p.Metrics(t)[`poise_backend_weight{backend="a",pool="web"}`]; m != 300 {
		t.Errorf("the metric is %v", m)
	}
	p.operate(t, "weight", "web/a", "0")
	if got := shares(t, listen, 10); got["a"] != 0 {
		t.Errorf("%v with a weight of 0", got)
	}
	if said := p.operate(t, "weight", "web/a", "auto"); said != "web/a has the weight of the file, 100" {
		t.Error(said)
	}
	if got := shares(t, listen, 10); got["a"] != 5 {
		t.Errorf("%v, want half for a", got)
	}
}

// What the operator has said survives reloads and restarts, and gives way to what
// is edited, whether the process runs then or not.
func TestOperatorStateIsKept(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	listen := addr(t)
	yaml := weights(listen, a, b, 100, 100)
	p := start(t, yaml)
	expect := func(p *proc, stateOfA string, weightOfB int) {
		t.Helper()
		if s, w := p.Backend(t, "web", "a").State, p.Backend(t, "web", "b").Weight; s != stateOfA || w != weightOfB {
			t.Errorf("a is %s and b weighs %d, want %s and %d", s, w, stateOfA, weightOfB)
		}
		if got := shares(t, listen, 4); stateOfA != "up" && got["a"] != 0 {
			t.Errorf("%v", got)
		}
	}
	p.operate(t, "maint", "web/a")
	p.operate(t, "weight", "web/b", "7")
	expect(p, "maint", 7)
	p.MustReload(t, yaml)
	expect(p, "maint", 7)

	fi, err := os.Stat(p.state())
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if fi, err = os.Stat(p.socket()); err != nil || fi.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}

	// A restart, and one that nobody has prepared for.
	p.Stop(t)
	q := restart(t, p)
	expect(q, "maint", 7)
	q.Signal(syscall.SIGKILL)
	q.Wait(t)
	q = restart(t, p)
	expect(q, "maint", 7)

	// The weight is edited, while it runs; the state holds.
	q.MustReload(t, weights(listen, a, b, 100, 90))
	expect(q, "maint", 90)
	q.MustReload(t, yaml)
	expect(q, "maint", 100)
	// And while it does not.
	q.operate(t, "weight", "web/b", "8")
	q.Stop(t)
	q.Write(t, weights(listen, a, b, 100, 60))
	q = restart(t, p)
	expect(q, "maint", 60)
	q.operate(t, "ready", "web/a")
	q.Stop(t)

	// Garbage in the file keeps nobody from starting.
	if err := os.WriteFile(p.state(), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	q = restart(t, p)
	expect(q, "up", 60)
	if !strings.Contains(q.Stderr(), "the operator's state is lost") {
		t.Error("nothing about it in the log")
	}
	q.operate(t, "drain", "web/a")
	q.Stop(t)
	q = restart(t, p)
	expect(q, "drain", 60)
	// Nor does no file at all.
	q.Stop(t)
	if err := os.Remove(p.state()); err != nil {
		t.Fatal(err)
	}
	expect(restart(t, p), "up", 60)
}

// restart runs the binary on the files of a process that has ended.
func restart(t *testing.T, old *proc) *proc {
	t.Helper()
	yaml, err := os.ReadFile(old.config())
	if err != nil {
		t.Fatal(err)
	}
	q := launch(t, string(yaml), inFolderOf(old))
	q.dir, q.http = old.dir, old.http
	eventually(t, "the process to be ready", func() bool {
		if q.gone() {
			t.Fatalf("poise ended before it was ready\n%s", q.Stderr())
		}
		return q.readyz() == 200
	})
	return q
}

func TestConns(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, weights(listen, a, b, 100, 100))
	var held []*client
	for range 4 {
		c := dial(t, listen)
		c.MustAsk(t)
		held = append(held, c)
		time.Sleep(10 * time.Millisecond) // for an order
	}
	list := func(args ...string) admin.ConnList {
		t.Helper()
		stdout, stderr, code := cli(t, append([]string{"conns", "--json", "--socket", p.socket()}, args...)...)
		var l admin.ConnList
		if err := json.Unmarshal([]byte(stdout), &l); err != nil || code != 0 {
			t.Fatalf("%v: exit code %d, %v, %q", args, code, err, stderr)
		}
		return l
	}
	all := list().Conns
	if len(all) != 4 {
		t.Fatalf("%+v", all)
	}
	for i, c := range all {
		if c.Client.String() != held[i].LocalAddr().String() || c.Local.String() != listen || c.Service != "web" || c.Pool != "web" ||
			c.State != "open" || c.BytesIn != 6 || c.BytesOut != 8 || c.Age <= 0 || i > 0 && c.Age > all[i-1].Age {
			t.Errorf("number %d: %+v", i, c)
		}
	}
	for _, c := range list("--backend", "a", "--pool", "web").Conns {
		if c.Backend != "a" {
			t.Errorf("%+v", c)
		}
	}
	if n := len(list("--backend", "a").Conns); n != 2 {
		t.Errorf("%d connections to a", n)
	}
	stdout, stderr, code := cli(t, "conns", "--limit", "1", "--socket", p.socket())
	if lines := strings.Split(stdout, "\n"); code != 0 || len(lines) != 3 || !strings.HasPrefix(strings.TrimSpace(lines[0]), "CLIENT") ||
		!strings.Contains(lines[1], held[0].LocalAddr().String()) || !strings.Contains(lines[1], "web/"+all[0].Backend) || !strings.Contains(stderr, "oldest 1") {
		t.Errorf("exit code %d, %q\n%s", code, stderr, stdout)
	}
	if code, _, err := p.get("/v1/conns"); err != nil || code != 404 {
		t.Errorf("clients' addresses are shown to everybody: %d, %v", code, err)
	}
}

func TestOperatorErrors(t *testing.T) {
	a, b := backend(t, "a", loadgen.Behaviour{}), backend(t, "b", loadgen.Behaviour{})
	p := start(t, weights(addr(t), a, b, 100, 100))
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
		args := append([]string{c.args[0], "--socket", p.socket()}, c.args[1:]...)
		stdout, stderr, code := cli(t, args...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
	for _, command := range [][]string{{"drain", "web/a"}, {"ready", "web/a"}, {"maint", "web/a"}, {"weight", "web/a", "1"}, {"conns"}} {
		socket := filepath.Join(t.TempDir(), "s")
		stdout, stderr, code := cli(t, append(command, "--socket", socket)...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, "poise is not running") {
			t.Errorf("%v without a daemon: exit code %d, %q, %q", command, code, stdout, stderr)
		}
	}
	if strings.Contains(p.Stderr(), "by=operator") {
		t.Error("something has changed")
	}
	if _, err := os.Stat(p.state()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state is kept: %v", err)
	}
}

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
