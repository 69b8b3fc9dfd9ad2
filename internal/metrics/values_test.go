package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
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
	svc.Stats.Outcomes[l4.RefusedACL].Add(9)
	svc.Stats.Duration.Observe(time.Second)
	svc.Stats.Handshakes.Add(5)
	svc.Stats.Resumed.Add(2)
	svc.Stats.HandshakesActive.Add(1)

	dns := &udp.Service{Name: "dns"}
	dns.Stats.Sessions.Add(4)
	dns.Stats.DatagramsIn.Add(30)
	dns.Stats.DatagramsOut.Add(20)
	dns.Stats.BytesOut.Add(500)
	dns.Stats.Dropped[udp.DropTooLarge].Add(2)
	dns.Stats.Outcomes[l4.OK].Add(3)
	dns.Stats.Outcomes[l4.RefusedRate].Add(5)
	dns.Stats.Outcomes[l4.ConnectFailed].Add(1)
	dns.Stats.Duration.Observe(time.Second)

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
	a.Stats.Datagrams.Add(12)
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
		services:  []*tcp.Service{svc},
		datagrams: []*udp.Service{dns},
		pools:     []*balance.Pool{pool, ab},
		checks: map[balance.BackendID]health.Status{
			ids[0]: {Up: true, FailuresBy: map[health.Reason]uint64{health.L7STS: 0}, At: time.Now(), Took: 1500 * time.Microsecond, CertExpires: time.Unix(1_900_000_000, 0)},
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
		certificates: []Certificate{
			{"pg", "/etc/poise/tls/a.pem", time.Unix(1_900_000_009, 0)},
			{"pg", "/etc/poise/tls/a.pem", time.Unix(1_900_000_007, 0)},
			{"pg", "\xff.pem", time.Unix(-5, 0)},
			{"other", "/etc/poise/tls/a.pem", time.Unix(1_900_000_008, 0)},
		},
	}
	s := gather(t, registry(src))
	s.want(t, "once", map[string]float64{
		"poise_config_last_reload_success":                                                           1,
		"poise_config_last_reload_timestamp_seconds":                                                 1_700_000_000.25,
		"poise_service_connections{service=pg}":                                                      0,
		"poise_service_connections_total{service=pg}":                                                7,
		"poise_service_refused_total{reason=no_backend,service=pg}":                                  2,
		"poise_service_refused_total{reason=refused_limit,service=pg}":                               0,
		"poise_service_refused_total{reason=refused_acl,service=pg}":                                 9,
		"poise_service_refused_total{reason=connect_failed,service=pg}":                              -1,
		"poise_service_bytes_total{direction=in,service=pg}":                                         100,
		"poise_service_bytes_total{direction=out,service=pg}":                                        200,
		"poise_retries_total{service=pg}":                                                            4,
		"poise_sessions_total{outcome=ok,service=pg}":                                                3,
		"poise_sessions_total{outcome=connect_failed,service=pg}":                                    1,
		"poise_sessions_total{outcome=killed,service=pg}":                                            0,
		"poise_session_duration_seconds{service=pg}":                                                 1,
		"poise_tls_handshakes_total{resumed=true,service=pg}":                                        2,
		"poise_tls_handshakes_total{resumed=false,service=pg}":                                       3,
		"poise_tls_handshakes_active{service=pg}":                                                    1,
		"poise_certificate_expiry_timestamp_seconds{certificate=/etc/poise/tls/a.pem,service=pg}":    1_900_000_007,
		"poise_certificate_expiry_timestamp_seconds{certificate=\ufffd.pem,service=pg}":              -5,
		"poise_certificate_expiry_timestamp_seconds{certificate=/etc/poise/tls/a.pem,service=other}": 1_900_000_008,
		"poise_pool_eligible_backends{pool=db}":                                                      2,
		"poise_pool_panic{pool=db}":                                                                  0,
		"poise_pool_queue{pool=db}":                                                                  0,
		"poise_pool_retries_denied_total{pool=db}":                                                   0,
		"poise_strategy_sessions_total{pool=ab,strategy=a}":                                          3,
		"poise_strategy_sessions_total{pool=ab,strategy=b}":                                          0,
		"poise_strategy_sessions_total{pool=db,strategy=a}":                                          -1,
		"poise_strategy_attempts_total{pool=ab,result=ok,strategy=a}":                                2,
		"poise_strategy_attempts_total{pool=ab,result=failed,strategy=a}":                            1,
		"poise_strategy_first_byte_duration_seconds{pool=ab,strategy=a}":                             2,
		"poise_backend_state{backend=d,pool=ab,state=half-open}":                                     1,
		"poise_backend_up{backend=d,pool=ab}":                                                        0,
		"poise_backend_state_changes_total{author=active,backend=b,pool=db,reason=L4CON}":            2,
		"poise_backend_state_changes_total{author=active,backend=b,pool=db,reason=passed}":           1,
		"poise_backend_state_changes_total{author=active,backend=a,pool=db,reason=passed}":           -1,
		"poise_backend_connections{backend=a,pool=db}":                                               3,
		"poise_backend_connections_total{backend=a,pool=db}":                                         2,
		"poise_backend_datagrams_total{backend=a,pool=db}":                                           12,
		"poise_backend_datagrams_total{backend=b,pool=db}":                                           -1,
		"poise_backend_bytes_total{backend=a,direction=in,pool=db}":                                  10,
		"poise_backend_bytes_total{backend=a,direction=out,pool=db}":                                 20,
		"poise_backend_connect_failures_total{backend=a,pool=db,reason=refused}":                     5,
		"poise_backend_connect_failures_total{backend=a,pool=db,reason=ok}":                          -1,
		"poise_backend_connect_duration_seconds{backend=a,pool=db}":                                  1,
		"poise_backend_first_byte_duration_seconds{backend=a,pool=db}":                               0,
		"poise_backend_up{backend=a,pool=db}":                                                        1,
		"poise_backend_up{backend=b,pool=db}":                                                        0,
		"poise_backend_up{backend=/run/\ufffd,pool=db}":                                              1,
		"poise_backend_state{backend=b,pool=db,state=down}":                                          1,
		"poise_backend_state{backend=b,pool=db,state=up}":                                            0,
		"poise_backend_weight{backend=b,pool=db}":                                                    100,
		"poise_backend_check_failures_total{backend=b,pool=db,reason=L4CON}":                         9,
		"poise_backend_check_failures_total{backend=a,pool=db,reason=L7STS}":                         0,
		"poise_backend_check_failures_total{backend=/run/\ufffd,pool=db,reason=L4CON}":               -1,
		"poise_backend_check_duration_seconds{backend=a,pool=db}":                                    0.0015,
		"poise_backend_check_duration_seconds{backend=b,pool=db}":                                    -1,
		"poise_backend_check_certificate_expiry_timestamp_seconds{backend=a,pool=db}":                1_900_000_000,
		"poise_backend_check_certificate_expiry_timestamp_seconds{backend=b,pool=db}":                -1,
		"poise_backend_ejections_total{backend=b,pool=db}":                                           6,
		"poise_loop_busy_ratio{loop=0}":                                                              0.25,
		"poise_loop_busy_ratio{loop=1}":                                                              0,
		"poise_accept_errors_total{reason=no_descriptors}":                                           3,
		"poise_log_dropped_total":                                                                    16,
		"poise_accesslog_dropped_total":                                                              8,
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
		services:  []*tcp.Service{{Name: "s"}},
		datagrams: []*udp.Service{{Name: "u"}},
		pools:     []*balance.Pool{balance.New(poolSpec("p", backendSpec("a", 1)), nil)},
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
