package health

import (
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// ejections counts the backends of the pool web that are out by passive checks.
func ejections(t *testing.T, p *rig.Proc) (names []string) {
	for _, b := range p.Status(t).Pools[0].Backends {
		if b.State == "ejected" || b.State == "half-open" {
			names = append(names, b.Name)
		}
	}
	return names
}

// Case O-15, with connects in place of requests: of three backends two refuse, and
// half of the pool may be ejected (the retry budget is not what this is about). One is, at any time; it returns to a trial after
// about the base time.
func TestEjectionLimit(t *testing.T) {
	well := rig.Backend(t, "c", loadgen.Behaviour{})
	listen := rig.Addr(t)
	const base = time.Second
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}, passive: {failures: 3, base: "+base.String()+", max_percent: 50}, retry_budget: {percent: 1000}",
		rig.Member("a", rig.Addr(t)), rig.Member("b", rig.Addr(t)), rig.Member("c", well.Addr())))
	out := map[string]bool{}
	for began := time.Now(); time.Since(began) < 6*time.Second; {
		if name, err := rig.Ask(listen); err != nil || name != "c" {
			t.Fatalf("%q, %v", name, err)
		}
		names := ejections(t, p)
		if len(names) > 1 {
			t.Fatalf("ejected are %v", names)
		}
		for _, name := range names {
			out[name] = true
		}
	}
	if len(out) != 1 || out["c"] {
		t.Fatalf("out were %v; one of those that fail stays out, as its trials fail", out)
	}
	m := p.Metrics(t)
	// On trial after 1 s and 2 s more, each time with one connection.
	if n := m.Sum("poise_backend_ejections_total"); n < 2 || n > 3 {
		t.Errorf("%v ejections", n)
	}
	if n := m.Sum("poise_backend_state_changes_total", `reason="trial_failed"`); n != m.Sum("poise_backend_ejections_total")-1 {
		t.Errorf("%v trials failed", n)
	}
}

// Case O-15: the counters of one that returns are reset.
func TestEjectionReturns(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	const base = 2 * time.Second
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}, passive: {failures: 3, base: "+base.String()+"}",
		rig.Member("a", a.Addr()), rig.Member("b", b.Addr())))
	a.Kill()
	state := func(want string) func() bool {
		return func() bool { return p.Backend(t, "web", "a").State == want }
	}
	rig.Eventually(t, "a to be ejected", func() bool {
		if _, err := rig.Ask(listen); err != nil {
			t.Fatal(err)
		}
		return state("ejected")()
	})
	ejected := time.Now()
	if err := a.Revive(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a to be half-open", state("half-open"))
	if after := time.Since(ejected); after < base/2 || after > 5*base {
		t.Errorf("half-open after %v", after)
	}
	// One trial at a time: while its client holds it, others go elsewhere.
	trial := rig.Dial(t, listen)
	rig.Eventually(t, "the trial to be under way", func() bool { return p.Backend(t, "web", "a").Connections == 1 })
	for range 5 {
		if name, err := rig.Ask(listen); err != nil || name != "b" {
			t.Fatalf("%q, %v", name, err)
		}
	}
	if name := trial.MustAsk(t); name != "a" {
		t.Errorf("the trial went to %s", name)
	}
	rig.Eventually(t, "a to be up", state("up"))
	a.Kill()
	for range 2 { // two failures are not enough again
		if _, err := rig.Ask(listen); err != nil {
			t.Fatal(err)
		}
	}
	if !state("up")() {
		t.Error("failures of before count")
	}
}

// A half-open backend whose trial never says anything is not forgotten.
func TestLostTrial(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}, passive: {failures: 3, base: 500ms}",
		rig.Member("a", a.Addr()), rig.Member("b", b.Addr())))
	a.Kill()
	rig.Eventually(t, "a to be ejected", func() bool {
		if _, err := rig.Ask(listen); err != nil {
			t.Fatal(err)
		}
		return p.Backend(t, "web", "a").State == "ejected"
	})
	if err := a.Revive(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a to be half-open", func() bool { return p.Backend(t, "web", "a").State == "half-open" })
	// The client says nothing and leaves: no answer, and not the backend's fault.
	c := rig.Connect(t, listen)
	rig.Eventually(t, "the trial to be connected", func() bool { return p.Backend(t, "web", "a").Connections == 1 })
	c.Close()
	rig.Eventually(t, "the trial to end", func() bool { return p.Backend(t, "web", "a").Connections == 0 })
	if got := p.Backend(t, "web", "a"); got.State != "half-open" || got.Trials != 1 {
		t.Errorf("%+v", got)
	}
	if name, err := rig.Ask(listen); err != nil || name != "a" {
		t.Errorf("the next trial went to %q, %v", name, err)
	}
	rig.Eventually(t, "a to be up", func() bool { return p.Backend(t, "web", "a").State == "up" })
}

// Case O-15: a lone backend is never ejected, and a client sees its failure.
func TestLoneBackendIsUsed(t *testing.T) {
	db := rig.Backend(t, "db1", loadgen.Behaviour{Reset: true})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "retries: 0", "check: {type: none}, passive: {failures: 3, max_percent: 100}", rig.Member("db1", db.Addr())))
	for i := range 20 {
		if _, err := rig.Ask(listen); err == nil {
			t.Fatal("answered")
		}
		if n := db.Stats().Accepted; n != uint64(i)+1 {
			t.Fatalf("after %d clients it has seen %d", i+1, n)
		}
	}
	if b := p.Backend(t, "web", "db1"); b.State != "up" {
		t.Errorf("%+v", b)
	}
}

// Case O-15: active checks know no limit.
func TestChecksIgnoreEjectionLimit(t *testing.T) {
	well := rig.Backend(t, "c", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {interval: 100ms, fast_interval: 100ms, fall: 2}, passive: {max_percent: 10}",
		rig.Member("a", rig.Addr(t)), rig.Member("b", rig.Addr(t)), rig.Member("c", well.Addr())))
	for _, name := range []string{"a", "b"} {
		rig.Eventually(t, name+" to be down", func() bool { return p.Backend(t, "web", name).State == "down" })
	}
	before := p.Metrics(t).Sum("poise_backend_connect_failures_total")
	if served, _ := rig.AskTimes(listen, 50); served["c"] != 50 {
		t.Errorf("%v", served)
	}
	if n := p.Metrics(t).Sum("poise_backend_connect_failures_total"); n != before {
		t.Errorf("%v connects to those that are down", n-before)
	}
	if n := p.Metrics(t).Sum("poise_backend_state_changes_total", `author="active"`, `reason="L4CON"`); n != 2 {
		t.Errorf("%v changes of state", n)
	}
}
