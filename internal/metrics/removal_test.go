package metrics

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// A backend that is removed and added again: its series stay while it has
// connections, then go, and come back with the counts they went with.
func TestRemovedBackend(t *testing.T) {
	pool := balance.New(poolSpec("p", backendSpec("a", 1), backendSpec("b", 2)), nil)
	src := &fake{pools: []*balance.Pool{pool}, ejections: map[balance.BackendID]uint64{}, checks: map[balance.BackendID]health.Status{}}
	reg := registry(src)
	var p promise
	scrape := func(when string, values map[string]float64) {
		t.Helper()
		s := gather(t, reg)
		p.check(t, s)
		s.want(t, when, values)
	}
	b := pool.Backends()[1]
	lease, err := pool.Acquire(flow(1), func(o *balance.Backend) bool { return o != b })
	if err != nil {
		t.Fatal(err)
	}
	b.Stats.Connections.Add(10)
	b.Stats.ConnectTime.Observe(time.Second)
	src.ejections[b.ID()] = 2
	src.checks[b.ID()] = health.Status{At: time.Now(), FailuresBy: map[health.Reason]uint64{health.L7STS: 3, health.L7TOUT: 0}}
	scrape("configured", map[string]float64{
		"poise_backend_connections{backend=b,pool=p}":                        1,
		"poise_backend_connections_total{backend=b,pool=p}":                  10,
		"poise_backend_connect_duration_seconds{backend=b,pool=p}":           1,
		"poise_backend_up{backend=b,pool=p}":                                 1,
		"poise_backend_ejections_total{backend=b,pool=p}":                    2,
		"poise_backend_check_failures_total{backend=b,pool=p,reason=L7STS}":  3,
		"poise_backend_check_failures_total{backend=b,pool=p,reason=L7TOUT}": 0,
	})

	pool.Update(poolSpec("p", backendSpec("a", 1)))
	clear(src.ejections)
	clear(src.checks)
	scrape("leaving", map[string]float64{
		"poise_backend_connections{backend=b,pool=p}":                       1,
		"poise_backend_connections_total{backend=b,pool=p}":                 10,
		"poise_backend_up{backend=b,pool=p}":                                0,
		"poise_backend_state{backend=b,pool=p,state=removed}":               1,
		"poise_backend_weight{backend=b,pool=p}":                            0,
		"poise_backend_ejections_total{backend=b,pool=p}":                   2,
		"poise_backend_check_failures_total{backend=b,pool=p,reason=L7STS}": 3,
	})

	// Another backend of the name takes its place while it leaves.
	pool.Update(poolSpec("p", backendSpec("a", 1), backendSpec("b", 3)))
	successor := pool.Backends()[1]
	successor.Stats.Connections.Add(5)
	src.ejections[successor.ID()] = 1
	scrape("succeeded", map[string]float64{
		"poise_backend_connections{backend=b,pool=p}":         1,
		"poise_backend_connections_total{backend=b,pool=p}":   15,
		"poise_backend_up{backend=b,pool=p}":                  1,
		"poise_backend_state{backend=b,pool=p,state=removed}": 0,
		"poise_backend_weight{backend=b,pool=p}":              100,
		"poise_backend_ejections_total{backend=b,pool=p}":     3,
	})

	b.Stats.Connections.Add(1) // counted between the scrapes
	b.Stats.Datagrams.Add(4)
	lease.Release()
	scrape("the first is gone", map[string]float64{
		"poise_backend_connections{backend=b,pool=p}":              0,
		"poise_backend_connections_total{backend=b,pool=p}":        16,
		"poise_backend_connect_duration_seconds{backend=b,pool=p}": 1,
	})

	pool.Update(poolSpec("p", backendSpec("a", 1)))
	s := gather(t, reg)
	for k := range s {
		if strings.Contains(k, "backend=b") {
			t.Error("still there: ", k)
		}
	}

	pool.Update(poolSpec("p", backendSpec("a", 1), backendSpec("b", 2)))
	pool.Backends()[1].Stats.Connections.Add(1)
	pool.Backends()[1].Stats.Datagrams.Add(1)
	scrape("back", map[string]float64{
		"poise_backend_datagrams_total{backend=b,pool=p}":          5,
		"poise_backend_connections_total{backend=b,pool=p}":        17,
		"poise_backend_connect_duration_seconds{backend=b,pool=p}": 1,
		"poise_backend_ejections_total{backend=b,pool=p}":          3,
	})
}

// Two strategies that are compared no longer keep their counts, and so does a pool
// that is in panic and has denied retries.
func TestPoolPolicies(t *testing.T) {
	spec := poolSpec("p", backendSpec("a", 1), backendSpec("b", 2), backendSpec("c", 3))
	spec.AB = &balance.AB{A: "random", B: "first"}
	spec.Retry = balance.RetryBudget{Percent: 0, Floor: 1}
	pool := balance.New(spec, nil)
	src := &fake{pools: []*balance.Pool{pool}, changes: map[balance.BackendID]map[StateChange]uint64{}}
	reg := registry(src)
	var p promise
	lease, err := pool.Acquire(flow(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	lease.Report(true, time.Millisecond)
	lease.Release()
	denied := 0
	for range 100 {
		if !pool.AllowRetry(l4.Failed, netip.Addr{}) {
			denied++
		}
	}
	src.changes[pool.Backends()[0].ID()] = map[StateChange]uint64{{"passive", "failures"}: 4}
	counts := map[string]float64{
		"poise_pool_retries_denied_total{pool=p}":                                            float64(denied),
		"poise_strategy_sessions_total{pool=p,strategy=b}":                                   1,
		"poise_backend_state_changes_total{author=passive,backend=a,pool=p,reason=failures}": 4,
	}
	scrape := func(when string, more map[string]float64) {
		t.Helper()
		s := gather(t, reg)
		p.check(t, s)
		s.want(t, when, counts)
		s.want(t, when, more)
	}
	scrape("compared", map[string]float64{"poise_pool_panic{pool=p}": 0})
	if denied == 0 {
		t.Error("no retry is denied")
	}

	spec.AB, spec.Algorithm, spec.Panic = nil, "random", 50
	pool.Update(spec)
	for _, b := range pool.Backends()[:2] {
		pool.SetFlag(b.ID(), balance.Down, true)
	}
	clear(src.changes) // as after the backend was removed and added again
	scrape("not compared any more", map[string]float64{"poise_pool_panic{pool=p}": 1, "poise_pool_eligible_backends{pool=p}": 3})
	src.changes[pool.Backends()[0].ID()] = map[StateChange]uint64{{"passive", "failures"}: 1}
	counts["poise_backend_state_changes_total{author=passive,backend=a,pool=p,reason=failures}"] = 5
	scrape("another change", nil)

	src.pools = []*balance.Pool{balance.New(spec, nil)}
	clear(src.changes)
	scrape("another pool of the name", map[string]float64{"poise_pool_panic{pool=p}": 0})
}

// A pool and a service, removed and added again as other objects.
func TestRemovedPoolAndService(t *testing.T) {
	src := &fake{}
	reg := registry(src)
	var p promise
	for i := range 5 {
		pool := balance.New(poolSpec("p", backendSpec("a", 1)), nil)
		svc := &tcp.Service{Name: "s"}
		src.pools, src.services = append(src.pools, pool), append(src.services, svc)
		pool.Backends()[0].Stats.Connections.Add(1)
		svc.Stats.Accepted.Add(1)
		svc.Stats.Duration.Observe(time.Second)
		s := gather(t, reg)
		p.check(t, s)
		s.want(t, fmt.Sprint(i), map[string]float64{
			"poise_backend_connections_total{backend=a,pool=p}": float64(i + 1),
			"poise_service_connections_total{service=s}":        float64(i + 1),
			"poise_session_duration_seconds{service=s}":         float64(i + 1),
			"poise_pool_eligible_backends{pool=p}":              float64(min(i+1, 2)),
		})
		if i > 0 { // two at a time share the names
			src.pools, src.services = src.pools[1:], src.services[1:]
		}
		if i%2 == 0 {
			continue
		}
		p.check(t, gather(t, reg))
	}
	src.pools, src.services = nil, nil
	for k := range gather(t, reg) {
		if strings.Contains(k, "service=") || strings.Contains(k, "pool=") {
			t.Error("still there: ", k)
		}
	}
}

// What is remembered of names that are gone is bounded, and the longest gone go
// first.
func TestLedgerForgets(t *testing.T) {
	l := newLedger[int](func(o *int, _ int, _ bool) int { return *o }, func(sum, c *int) { *sum += *c })
	object := func(v int) *int { return &v }
	for name := range remembered + 10 {
		l.totals(map[*int]int{object(1): name})
	}
	l.totals(nil)
	if len(l.past) != remembered || len(l.gone) != remembered || len(l.live) != 0 {
		t.Fatalf("%d pasts, %d gone, %d live", len(l.past), len(l.gone), len(l.live))
	}
	for _, q := range []struct{ name, want int }{{remembered + 9, 2}, {10, 2}, {9, 1}, {0, 1}} {
		if got := *l.totals(map[*int]int{object(1): q.name})[q.name]; got != q.want {
			t.Errorf("name %d: %d, want %d", q.name, got, q.want)
		}
	}
}

// A service that changes its protocol goes on counting under its name.
func TestServiceChangesProtocol(t *testing.T) {
	src := &fake{}
	reg := registry(src)
	var p promise
	scrape := func(when string, values map[string]float64) {
		t.Helper()
		s := gather(t, reg)
		p.check(t, s)
		s.want(t, when, values)
	}
	stream := &tcp.Service{Name: "s"}
	stream.Stats.Accepted.Add(3)
	stream.Stats.Handshakes.Add(3)
	src.services = []*tcp.Service{stream}
	scrape("TCP", map[string]float64{
		"poise_service_connections_total{service=s}":            3,
		"poise_tls_handshakes_total{resumed=false,service=s}":   3,
		"poise_service_datagrams_total{direction=in,service=s}": -1,
	})
	dgram := &udp.Service{Name: "s"}
	dgram.Stats.Sessions.Add(2)
	dgram.Stats.DatagramsIn.Add(5)
	src.datagrams = []*udp.Service{dgram}
	both := map[string]float64{
		"poise_service_connections_total{service=s}":            5,
		"poise_tls_handshakes_total{resumed=false,service=s}":   3,
		"poise_service_datagrams_total{direction=in,service=s}": 5,
	}
	scrape("both while connections end", both)
	src.services = nil
	scrape("UDP", both)
}
