package metrics

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

func TestValues(t *testing.T) {
	svc := &tcp.Service{Name: "pg"}
	svc.Stats.Accepted.Add(7)
	svc.Stats.BytesIn.Add(100)
	svc.Stats.BytesOut.Add(200)
	svc.Stats.Retries.Add(4)
	svc.Stats.Outcomes[l4.OK].Add(3)
	svc.Stats.Outcomes[l4.NoBackend].Add(2)
	svc.Stats.Outcomes[l4.ConnectFailed].Add(1)
	svc.Stats.Duration.Observe(time.Second)

	pool := balance.New(poolSpec("db", backendSpec("a", 1), backendSpec("b", 2), backendSpec("/run/\xff", 3)), nil)
	ids := []balance.BackendID{pool.Backends()[0].ID(), pool.Backends()[1].ID()}
	pool.SetFlag(ids[1], balance.Down, true)
	a := pool.Backends()[0]
	for range 3 {
		if _, err := pool.Acquire(flow(1), func(b *balance.Backend) bool { return b != a }); err != nil {
			t.Fatal(err)
		}
	}
	a.Stats.Connections.Add(2)
	a.Stats.BytesIn.Add(10)
	a.Stats.BytesOut.Add(20)
	a.Stats.ConnectFailures[l4.ConnectRefused].Add(5)
	a.Stats.ConnectTime.Observe(time.Millisecond)

	comparing := poolSpec("ab", backendSpec("c", 4), backendSpec("d", 5))
	comparing.AB = &balance.AB{A: "round-robin", B: "p2c", Split: 1}
	ab := balance.New(comparing, nil)
	for i, ok := range []bool{true, true, false} {
		lease, err := ab.Acquire(flow(uint16(i)), nil)
		if err != nil {
			t.Fatal(err)
		}
		lease.Report(ok, time.Millisecond)
		lease.Release()
	}
	onTrial := ab.Backends()[1].ID()
	ab.SetTrial(onTrial, 1)

	src := &fake{
		services: []*tcp.Service{svc},
		pools:    []*balance.Pool{pool, ab},
		checks: map[balance.BackendID]health.Status{
			ids[0]: {Up: true, At: time.Now(), Took: 1500 * time.Microsecond, CertExpires: time.Unix(1_900_000_000, 0)},
			ids[1]: {FailuresBy: map[health.Reason]uint64{health.L4CON: 9}},
		},
		ejections: map[balance.BackendID]uint64{ids[1]: 6},
		changes: map[balance.BackendID]map[StateChange]uint64{ids[1]: {
			{"active", "L4CON"}: 2, {"active", "passed"}: 1,
		}},
		reloaded: time.UnixMilli(1_700_000_000_250),
		reloadOK: true,
		busy:     []time.Duration{time.Second, 0},
		total:    []time.Duration{4 * time.Second, 4 * time.Second},
		dropped:  8,

		acceptErrors: map[string]uint64{"no_descriptors": 3, "other": 0},
	}
	s := gather(t, registry(src))
	s.want(t, "once", map[string]float64{
		"poise_config_last_reload_success":                                                 1,
		"poise_config_last_reload_timestamp_seconds":                                       1_700_000_000.25,
		"poise_service_connections{service=pg}":                                            0,
		"poise_service_connections_total{service=pg}":                                      7,
		"poise_service_refused_total{reason=no_backend,service=pg}":                        2,
		"poise_service_refused_total{reason=refused_limit,service=pg}":                     0,
		"poise_service_bytes_total{direction=in,service=pg}":                               100,
		"poise_service_bytes_total{direction=out,service=pg}":                              200,
		"poise_retries_total{service=pg}":                                                  4,
		"poise_sessions_total{outcome=ok,service=pg}":                                      3,
		"poise_sessions_total{outcome=connect_failed,service=pg}":                          1,
		"poise_sessions_total{outcome=killed,service=pg}":                                  0,
		"poise_session_duration_seconds{service=pg}":                                       1,
		"poise_pool_eligible_backends{pool=db}":                                            2,
		"poise_pool_panic{pool=db}":                                                        0,
		"poise_pool_queue{pool=db}":                                                        0,
		"poise_pool_retries_denied_total{pool=db}":                                         0,
		"poise_strategy_sessions_total{pool=ab,strategy=a}":                                3,
		"poise_strategy_sessions_total{pool=ab,strategy=b}":                                0,
		"poise_strategy_sessions_total{pool=db,strategy=a}":                                -1,
		"poise_strategy_attempts_total{pool=ab,result=ok,strategy=a}":                      2,
		"poise_strategy_attempts_total{pool=ab,result=failed,strategy=a}":                  1,
		"poise_strategy_first_byte_duration_seconds{pool=ab,strategy=a}":                   2,
		"poise_backend_state{backend=d,pool=ab,state=half-open}":                           1,
		"poise_backend_up{backend=d,pool=ab}":                                              0,
		"poise_backend_state_changes_total{author=active,backend=b,pool=db,reason=L4CON}":  2,
		"poise_backend_state_changes_total{author=active,backend=b,pool=db,reason=passed}": 1,
		"poise_backend_state_changes_total{author=active,backend=a,pool=db,reason=passed}": -1,
		"poise_backend_connections{backend=a,pool=db}":                                     3,
		"poise_backend_connections_total{backend=a,pool=db}":                               2,
		"poise_backend_bytes_total{backend=a,direction=in,pool=db}":                        10,
		"poise_backend_bytes_total{backend=a,direction=out,pool=db}":                       20,
		"poise_backend_connect_failures_total{backend=a,pool=db,reason=refused}":           5,
		"poise_backend_connect_failures_total{backend=a,pool=db,reason=ok}":                -1,
		"poise_backend_connect_duration_seconds{backend=a,pool=db}":                        1,
		"poise_backend_first_byte_duration_seconds{backend=a,pool=db}":                     0,
		"poise_backend_up{backend=a,pool=db}":                                              1,
		"poise_backend_up{backend=b,pool=db}":                                              0,
		"poise_backend_up{backend=/run/\ufffd,pool=db}":                                    1,
		"poise_backend_state{backend=b,pool=db,state=down}":                                1,
		"poise_backend_state{backend=b,pool=db,state=up}":                                  0,
		"poise_backend_weight{backend=b,pool=db}":                                          100,
		"poise_backend_check_failures_total{backend=b,pool=db,reason=L4CON}":               9,
		"poise_backend_check_failures_total{backend=a,pool=db,reason=L7STS}":               0,
		"poise_backend_check_failures_total{backend=/run/\ufffd,pool=db,reason=L4CON}":     -1,
		"poise_backend_check_duration_seconds{backend=a,pool=db}":                          0.0015,
		"poise_backend_check_duration_seconds{backend=b,pool=db}":                          -1,
		"poise_backend_check_certificate_expiry_timestamp_seconds{backend=a,pool=db}":      1_900_000_000,
		"poise_backend_check_certificate_expiry_timestamp_seconds{backend=b,pool=db}":      -1,
		"poise_backend_ejections_total{backend=b,pool=db}":                                 6,
		"poise_loop_busy_ratio{loop=0}":                                                    0.25,
		"poise_loop_busy_ratio{loop=1}":                                                    0,
		"poise_accept_errors_total{reason=no_descriptors}":                                 3,
		"poise_accesslog_dropped_total":                                                    8,
	})
	used := map[string]bool{}
	for k := range s {
		name, _, _ := strings.Cut(k, "{")
		used[name] = true
	}
	for _, f := range catalogue {
		if !used[f.name] {
			t.Errorf("%s is never emitted", f.name)
		}
	}
}

func TestLint(t *testing.T) {
	src := &fake{
		services: []*tcp.Service{{Name: "s"}},
		pools:    []*balance.Pool{balance.New(poolSpec("p", backendSpec("a", 1)), nil)},
	}
	families, err := registry(src).Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

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
	src.checks[b.ID()] = health.Status{At: time.Now(), FailuresBy: map[health.Reason]uint64{health.L7STS: 3}}
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
	scrape("back", map[string]float64{
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
		if !pool.AllowRetry() {
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

func TestBusyMeter(t *testing.T) {
	s := time.Second
	var m busyMeter
	for i, step := range []struct {
		busy, total time.Duration
		want        float64
	}{
		{1 * s, 4 * s, 0.25},             // since the loop began
		{4 * s, 8 * s, 0.75},             // since the scrape before
		{4*s + s/4, 8*s + s/2, 0.5},      // soon after it,
		{4*s + s/2, 8*s + 3*s/4, 2. / 3}, // and again: still since then
		{5 * s, 18 * s, 0.1},             // long after it
		{5 * s, 18 * s, 0},               // no time has passed
		{17 * s, 28 * s, 1},              // clocks read at different moments
		{17 * s, 38 * s, 0},              // idle
	} {
		got := m.ratios([]time.Duration{step.busy}, []time.Duration{step.total})
		if len(got) != 1 || got[0] != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	if got := m.ratios([]time.Duration{s, s}, []time.Duration{2 * s, s}); got[0] != 0.5 || got[1] != 1 {
		t.Errorf("another number of loops: %v", got)
	}
}

// A metric that cannot be served costs itself only, and is logged.
func TestHandlerServesWhatItCan(t *testing.T) {
	var buf bytes.Buffer
	src := &fake{
		pools:        []*balance.Pool{balance.New(poolSpec("p", backendSpec("a", 1)), nil)},
		acceptErrors: map[string]uint64{"\xfe": 1, "\xff": 1}, // the same once they are UTF-8
	}
	h := Handler(src, "1.2.3", slog.New(slog.NewTextHandler(&buf, nil)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `poise_backend_up{backend="a",pool="p"} 1`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(buf.String(), "poise_accept_errors_total") {
		t.Error(buf.String())
	}
}

func BenchmarkScrape(b *testing.B) {
	var specs []balance.BackendSpec
	for i := range 1000 {
		specs = append(specs, backendSpec(fmt.Sprint("b", i), uint16(i+1)))
	}
	pool := balance.New(poolSpec("p", specs...), nil)
	for _, be := range pool.Backends() {
		for i := range 2000 {
			be.Stats.ConnectTime.Observe(time.Duration(i) * time.Microsecond)
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(New(&fake{pools: []*balance.Pool{pool}}, ""))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reg.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
