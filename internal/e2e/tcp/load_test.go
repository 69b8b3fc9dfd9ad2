package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Mission: one of 3 backends is blocked: it serves one request at a time, 30 ms
// each. Round robin goes on sending a third of all clients there, where they
// queue up. An algorithm that counts connections sees the queue.
func TestBlockedBackend(t *testing.T) {
	db := rig.ThreeBackends(t)
	db[1].Behave(loadgen.Behaviour{Serial: true, Delay: 30 * time.Millisecond})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.OneService(listen, "round-robin", db[:]...))
	measure := func(balance string) loadgen.Result {
		p.MustReload(t, rig.OneService(listen, balance, db[:]...))
		res, err := loadgen.Run(t.Context(), loadgen.Options{
			Addr: listen, Clients: 24, Duration: 1500 * time.Millisecond, PerConnection: 1, Size: 64, Timeout: rig.Patience,
		})
		if err != nil {
			t.Fatal(err)
		}
		if res.Failed != 0 {
			t.Errorf("%s: %+v", balance, res.Errors)
		}
		t.Logf("%-11s p50 %-9v p95 %-9v %5.0f/s", balance, res.Latency.P50, res.Latency.P95, res.PerSecond())
		return res
	}
	// The share of requests that meet the blocked one depends on how many others
	// the machine can serve meanwhile. Busy with something else it may be so few
	// that they are the slowest 5 %, so it has three goes.
	const goes, ratio = 3, 5
	for _, balance := range []string{"least-conn", "p2c"} {
		for attempt := 1; ; attempt++ {
			blind, seeing := measure("round-robin"), measure(balance)
			if blind.Latency.P95 >= ratio*seeing.Latency.P95 && blind.PerSecond() < seeing.PerSecond() {
				break
			}
			if attempt == goes {
				t.Errorf("%s is not much better than round-robin", balance)
				break
			}
		}
	}
}

// Mission: one backend is stopped under load with short requests.
func TestStopUnderLoad(t *testing.T) {
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	const limit = 2 * time.Second
	p := rig.Start(t, rig.WebConfig(listen, fmt.Sprintf("timeouts: {connect: %s}", limit),
		"balance: round-robin, check: {type: tcp, interval: 100ms, fast_interval: 100ms, timeout: 200ms, fall: 2}",
		rig.Member("db1", db[0].Addr()), rig.Member("db2", db[1].Addr()), rig.Member("db3", db[2].Addr())))
	l := rig.StartLoad(t, listen, 8)
	l.More(t, 300)

	down := func(name string) time.Time {
		rig.Eventually(t, name+" to be down", func() bool { return p.Backend(t, "web", name).State == "down" })
		return time.Now()
	}
	// It refuses: the next one is tried at once.
	if err := db[0].Stop(); err != nil {
		t.Fatal(err)
	}
	refusing := down("db1")
	l.More(t, 300)

	// It does not answer, so a client that is sent to it waits for the connect timeout,
	// until the check has seen it.
	if err := db[1].Stop(); err != nil {
		t.Fatal(err)
	}
	rig.Mute(t, db[1].Addr())
	silent := down("db2")
	l.More(t, 300)
	res := l.End(t)

	worst := time.Duration(0)
	for _, s := range l.Samples {
		began := s.End.Add(-s.Latency)
		if began.After(silent) {
			worst = max(worst, s.Latency)
		}
		if s.Backend == "db1" && began.After(refusing) || s.Backend == "db2" && began.After(silent) {
			t.Errorf("%s answered", s.Backend)
		}
	}
	if worst >= limit {
		t.Errorf("a client waited %v after the check had seen it", worst)
	}
	t.Logf("%d requests; the slowest after the check had seen it took %v, of all %v", res.Requests, worst, res.Latency.Max)
}

// Mission: one backend is stopped under load with requests of 500 ms, drained
// first. No client is cut off or waits longer than before.
func TestStopDrainedUnderLoad(t *testing.T) {
	t.Parallel()
	const request = 500 * time.Millisecond
	db := rig.ThreeBackends(t)
	for _, b := range db {
		b.Behave(loadgen.Behaviour{Delay: request})
	}
	listen := rig.Addr(t)
	yaml := func(weight int) string {
		return rig.WebConfig(listen, "", "balance: round-robin, check: {type: tcp, interval: 100ms, fast_interval: 100ms}",
			rig.Member("db1", db[0].Addr(), fmt.Sprintf("weight: %d", weight)), rig.Member("db2", db[1].Addr()), rig.Member("db3", db[2].Addr()))
	}
	p := rig.Start(t, yaml(100))
	l := rig.StartLoad(t, listen, 30)
	l.More(t, 60)

	p.MustReload(t, yaml(0))
	if b := p.Backend(t, "web", "db1"); b.Connections == 0 {
		t.Error("no connection to db1 is open: there is nothing to drain")
	}
	rig.Eventually(t, "db1 to be drained", func() bool { return p.Backend(t, "web", "db1").Connections == 0 })
	served := db[0].Stats().Requests
	db[0].Kill()
	l.More(t, 60)
	res := l.End(t)
	if n := db[0].Stats().Requests; n != served || served == 0 {
		t.Errorf("db1 served %d requests, %d when it was drained", n, served)
	}
	t.Logf("%d requests, p50 %v, p99 %v, max %v", res.Requests, res.Latency.P50, res.Latency.P99, res.Latency.Max)
	if res.Latency.Max > 10*request {
		t.Errorf("a client waited %v", res.Latency.Max)
	}
}
