package reload

import (
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// A backend is taken out and put back under load: no client notices.
func TestDrainUnderLoad(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.Weighted(listen, a, b, 100, 100))
	held := map[string]*rig.Client{}
	for len(held) < 2 {
		c := rig.Dial(t, listen)
		held[c.MustAsk(t)] = c
	}
	l := rig.StartLoad(t, listen, 4)
	l.More(t, 50)
	for range 2 {
		if said := p.Operate(t, "drain", "web/a"); !strings.Contains(said, "web/a gets no new connections") {
			t.Error(said)
		}
		drained := p.Backend(t, "web", "a")
		if drained.State != "drain" || drained.Operator != "drain" || !strings.Contains(drained.Reason, "drain by the operator since") {
			t.Errorf("%+v", drained)
		}
		rig.Eventually(t, "all but one connection to end", func() bool { return p.Backend(t, "web", "a").Connections == 1 })
		served := p.Backend(t, "web", "a").Total
		l.More(t, 50)
		if got := p.Backend(t, "web", "a"); got.Total != served || got.Connections != 1 {
			t.Errorf("%d connections while it drains, %d open", got.Total-served, got.Connections)
		}
		if name := held["a"].MustAsk(t); name != "a" {
			t.Errorf("the open connection is served by %s", name)
		}
		if said := p.Operate(t, "ready", "web/a"); said != "web/a is ready" {
			t.Error(said)
		}
		l.More(t, 50)
		if got := p.Backend(t, "web", "a"); got.Total == served || got.State != "up" || got.Operator != "" {
			t.Errorf("it is back: %+v", got)
		}
	}
	l.End(t)
	if n := strings.Count(p.Stderr(), "by=operator"); n != 4 {
		t.Errorf("%d lines in the log, want 4", n)
	}
	if n := p.Metrics(t).Sum("poise_backend_state_changes_total", `author="operator"`, `backend="a"`); n != 4 {
		t.Errorf("%v changes are counted, want 4", n)
	}
}

func TestDrainWait(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.Weighted(listen, a, b, 100, 100))
	hold := func() *rig.Client {
		for {
			if c := rig.Dial(t, listen); c.MustAsk(t) == "a" {
				return c
			}
		}
	}
	c := hold()
	_, stderr, code := rig.CLI(t, "drain", "web/a", "--wait", "--deadline", "300ms", "--socket", p.Socket())
	if code != 1 || !strings.Contains(stderr, "web/a is not drained after 300ms: 1 connection is open") {
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
			stdout, stderr, code := rig.CLI(t, "drain", "web/a", "--wait", "--socket", p.Socket())
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
	if said := p.Operate(t, "drain", "web/a", "--wait", "--deadline", "1ms"); said != "web/a is drained: no connection is open" {
		t.Error(said)
	}

	// Another command makes it ready again, or a reload takes it out of the configuration.
	p.Operate(t, "ready", "web/a")
	c = hold()
	done = wait()
	rig.Eventually(t, "the drain", func() bool { return p.Backend(t, "web", "a").State == "drain" })
	p.Operate(t, "ready", "web/a")
	if o := <-done; o.code != 1 || !strings.Contains(o.stderr, "somebody has made it ready again") {
		t.Errorf("%+v", o)
	}
	done = wait()
	rig.Eventually(t, "the drain", func() bool { return p.Backend(t, "web", "a").State == "drain" })
	p.MustReload(t, rig.WebConfig(listen, "", "check: {type: none}", rig.Member("b", b.Addr())))
	if o := <-done; o.code != 1 || !strings.Contains(o.stderr, `there is no backend "a"; the backends are b`) {
		t.Errorf("%+v", o)
	}
	c.MustAsk(t)

	// At the deadline it may close.
	p.MustReload(t, rig.Weighted(listen, a, b, 100, 100))
	c.Close()
	c = hold()
	if said := p.Operate(t, "drain", "web/a", "--wait", "--deadline", "100ms", "--close"); said != "web/a is drained: 1 connection was closed after 100ms" {
		t.Error(said)
	}
	rig.WantClosed(t, []*rig.Client{c})
	rig.Eventually(t, "its line in the access log", func() bool { return strings.Contains(p.Stdout(), "/drained ") })
}
