package tcp

import (
	"maps"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Mission: 3 equal backends, round robin, 300 sequential connections.
func TestEqualShares(t *testing.T) {
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	rig.Start(t, rig.OneService(listen, "round-robin", db[:]...))
	served, failed := rig.AskTimes(listen, 300)
	if failed != 0 || !maps.Equal(served, map[string]int{"db1": 100, "db2": 100, "db3": 100}) {
		t.Errorf("%v, %d failed", served, failed)
	}
}

// Mission: one of 3 is killed, checks every 200 ms with a threshold of 1.
func TestKilledBackendIsFoundOut(t *testing.T) {
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: tcp, interval: 200ms, fast_interval: 200ms, fall: 1}",
		rig.Member("db1", db[0].Addr()), rig.Member("db2", db[1].Addr()), rig.Member("db3", db[2].Addr())))
	db[1].Kill()
	// Until the check has seen it, who is sent there goes elsewhere.
	rig.Eventually(t, "db2 to be down", func() bool {
		if _, err := rig.Ask(listen); err != nil {
			t.Fatal(err)
		}
		return p.Backend(t, "web", "db2").State == "down"
	})
	served, failed := rig.AskTimes(listen, 300)
	if failed != 0 || !maps.Equal(served, map[string]int{"db1": 150, "db3": 150}) {
		t.Errorf("%v, %d failed", served, failed)
	}
	for name, want := range map[string]string{"db1": "up", "db2": "down", "db3": "up"} {
		if b := p.Backend(t, "web", name); b.State != want {
			t.Errorf("%+v", b)
		}
	}
}

// Mission: the same with checks, passive ejection and retries all off. It is as
// bad as it should be, which shows what each of them is there for.
func TestKilledBackendWithoutDefence(t *testing.T) {
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "retries: 0", "balance: round-robin, check: {type: none}, passive: {failures: 0}",
		rig.Member("db1", db[0].Addr()), rig.Member("db2", db[1].Addr()), rig.Member("db3", db[2].Addr())))
	db[1].Kill()
	served, failed := rig.AskTimes(listen, 300)
	if failed != 100 || !maps.Equal(served, map[string]int{"db1": 100, "db3": 100}) {
		t.Errorf("%v, %d failed", served, failed)
	}
	for _, name := range []string{"db1", "db2", "db3"} {
		if b := p.Backend(t, "web", name); b.State != "up" {
			t.Errorf("%+v", b)
		}
	}
	if n := p.Metrics(t)[`poise_sessions_total{outcome="connect_failed",service="web"}`]; n != 100 {
		t.Errorf("%v connections are counted as failed", n)
	}
}

// Mission: 5 backends, 2 of them failing at connect, 200 connections. No client
// notices, and each failing one is ejected after its threshold of 10 and tried
// again only by a single half-open trial.
func TestFailingBackendsAreEjected(t *testing.T) {
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}, passive: {failures: 10, base: 4s, max: 10m}",
		rig.Member("bad1", rig.Addr(t)), rig.Member("db1", db[0].Addr()), rig.Member("db2", db[1].Addr()), rig.Member("bad2", rig.Addr(t)), rig.Member("db3", db[2].Addr())))
	served, failed := rig.AskTimes(listen, 200)
	if n := served["db1"] + served["db2"] + served["db3"]; n != 200 {
		t.Errorf("%v, %d failed", served, failed)
	}
	for _, name := range []string{"bad1", "bad2"} {
		rig.Eventually(t, name+" to be ejected", func() bool { return p.Backend(t, "web", name).State == "ejected" })
		// The tenth ejects it, which takes the process an instant.
		if b := p.Backend(t, "web", name); b.ConnectFailures < 10 || b.ConnectFailures > 15 {
			t.Errorf("%+v", b)
		}
	}
	for _, name := range []string{"db1", "db2", "db3"} {
		if b := p.Backend(t, "web", name); b.State != "up" || served[name] < 50 {
			t.Errorf("%+v, %v", b, served)
		}
	}
	failures := func(name string) uint64 { return p.Backend(t, "web", name).ConnectFailures }
	bad1, bad2 := failures("bad1"), failures("bad2")
	if m := p.Metrics(t); m.Sum("poise_backend_ejections_total") != 2 || m.Sum("poise_sessions_total", `outcome="ok"`) < 200 {
		t.Errorf("%v ejections, %v good ends", m.Sum("poise_backend_ejections_total"), m.Sum("poise_sessions_total", `outcome="ok"`))
	}

	// When the time is up each gets one connection, whose client goes elsewhere, and
	// is ejected for twice as long.
	for _, name := range []string{"bad1", "bad2"} {
		rig.Eventually(t, name+" to be half-open", func() bool { return p.Backend(t, "web", name).State == "half-open" })
	}
	if served, failed := rig.AskTimes(listen, 200); served["db1"]+served["db2"]+served["db3"] != 200 {
		t.Errorf("%v, %d failed", served, failed)
	}
	for _, name := range []string{"bad1", "bad2"} {
		b := p.Backend(t, "web", name)
		if left := time.Until(b.EjectedUntil); b.State != "ejected" || left < time.Second || left > 8*time.Second {
			t.Errorf("%+v", b)
		}
	}
	if n1, n2 := failures("bad1"), failures("bad2"); n1 != bad1+1 || n2 != bad2+1 {
		t.Errorf("%d and %d trials", n1-bad1, n2-bad2)
	}
	m := p.Metrics(t)
	for _, reason := range []string{"failures", "time_over", "trial_failed"} {
		if n := m.Sum("poise_backend_state_changes_total", `author="passive"`, `reason="`+reason+`"`); n != 2 {
			t.Errorf("%v changes for %s", n, reason)
		}
	}
}
