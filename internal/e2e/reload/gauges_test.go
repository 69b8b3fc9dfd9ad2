package reload

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// watch scrapes all the time and holds the samples to what must always be true,
// until the test calls the function returned.
func watch(t *testing.T, p *rig.Proc, limit float64) (stop func()) {
	t.Helper()
	end := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		totals := rig.Series{}
		for n := 0; ; n++ {
			select {
			case <-end:
				t.Logf("%d scrapes", n)
				return
			case <-time.After(20 * time.Millisecond):
			}
			m, err := p.Scrape()
			if err != nil {
				t.Error(err)
				return
			}
			for series, v := range m {
				name, _, _ := strings.Cut(series, "{")
				switch {
				case name == "poise_service_connections" && (v < 0 || v > limit), name == "poise_backend_connections" && v < 0:
					t.Errorf("%s is %v", series, v)
				case !strings.HasPrefix(name, "poise_"):
				case strings.HasSuffix(name, "_total"), strings.HasSuffix(name, "_count"), strings.HasSuffix(name, "_bucket"):
					// A series may go, but if it comes back, it may not have fallen.
					if v < totals[series] {
						t.Errorf("%s fell from %v to %v", series, totals[series], v)
					}
					totals[series] = v
				}
			}
		}
	})
	return func() { close(end); watching.Wait() }
}

// Case O-40: gauges are true, and counters never fall.
func TestGaugesStayTrue(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen, dead := rig.Addr(t), rig.Addr(t)
	yaml := func(backends ...*loadgen.Backend) string {
		return fmt.Sprintf(`
services:
  web: {listen: [%q], pool: web, max_connections: 10}
  dead: {listen: [%q], pool: dead}
pools:
  dead: {backends: [%q], check: {type: none}, passive: {failures: 0}}
%s`, listen, dead, rig.Addr(t), rig.OnePool("web", "round-robin", "", backends...))
	}
	p := rig.Start(t, yaml(a, b))
	defer watch(t, p, 10)()
	const open = `poise_service_connections{service="web"}`
	quiet := func(want float64) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("%v connections", want), func() bool {
			m := p.Metrics(t)
			return m[open] == want && m.Sum("poise_backend_connections", `pool="web"`) == want
		})
	}

	var list []*rig.Client
	for range 10 {
		list = append(list, rig.Dial(t, listen))
		list[len(list)-1].MustAsk(t)
	}
	quiet(10)
	for range 5 {
		if _, err := rig.Ask(listen); err == nil {
			t.Error("an eleventh connection")
		}
	}
	for range 3 {
		if _, err := rig.Ask(dead); err == nil {
			t.Error("a dead pool answers")
		}
	}
	quiet(10)
	for _, c := range list {
		c.Close()
	}
	quiet(0)
	m := p.Metrics(t)
	for series, want := range map[string]float64{
		`poise_service_connections{service="dead"}`:                               0,
		`poise_service_connections_total{service="web"}`:                          15,
		`poise_service_refused_total{reason="refused_limit",service="web"}`:       5,
		`poise_sessions_total{outcome="refused_limit",service="web"}`:             5,
		`poise_sessions_total{outcome="ok",service="web"}`:                        10,
		`poise_sessions_total{outcome="connect_failed",service="dead"}`:           3,
		`poise_backend_connections_total{backend="a",pool="web"}`:                 5,
		`poise_backend_connections_total{backend="b",pool="web"}`:                 5,
		`poise_backend_state{backend="a",pool="web",state="up"}`:                  1,
		`poise_service_bytes_total{direction="in",service="web"}`:                 60,
		`poise_service_bytes_total{direction="out",service="web"}`:                80,
		`poise_pool_eligible_backends{pool="web"}`:                                2,
		`poise_backend_up{backend="a",pool="web"}`:                                1,
		`poise_session_duration_seconds_count{service="web"}`:                     10,
		`poise_backend_first_byte_duration_seconds_count{backend="a",pool="web"}`: 5,
	} {
		if got, ok := m[series]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", series, got, ok, want)
		}
	}

	// b is removed while it has two connections.
	list = nil
	for range 4 {
		list = append(list, rig.Dial(t, listen))
		list[len(list)-1].MustAsk(t)
	}
	p.MustReload(t, yaml(a))
	quiet(4)
	const openOfB = `poise_backend_connections{backend="b",pool="web"}`
	if got := p.Metrics(t)[openOfB]; got != 2 {
		t.Errorf("%s is %v", openOfB, got)
	}
	for _, c := range list {
		c.Close()
	}
	quiet(0)
	rig.Eventually(t, "the series of b to go", func() bool { _, is := p.Metrics(t)[openOfB]; return !is })

	// Ten reloads under load, b coming and going.
	clients := rig.Repeat(t, 4, time.Millisecond, func() error { _, err := rig.Ask(listen); return err })
	for i := range 10 {
		if i%2 == 0 {
			p.MustReload(t, yaml(a, b))
		} else {
			p.MustReload(t, yaml(a))
		}
		time.Sleep(50 * time.Millisecond)
	}
	clients.Stop()
	quiet(0)
	m = p.Metrics(t)
	ended, accepted := m.Sum("poise_sessions_total", `service="web"`), m.Sum("poise_service_connections_total", `service="web"`)
	if ended != accepted {
		t.Errorf("%v accepted, %v ended", accepted, ended)
	}
}

// A service that is removed with a connection open is there until that ends, and
// one that comes back goes on counting where it was.
func TestRemovedServiceIsSeenToItsEnd(t *testing.T) {
	a := rig.Backend(t, "a", loadgen.Behaviour{})
	listen, other := rig.Addr(t), rig.Addr(t)
	two := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\n  other: {listen: [%q], pool: other}\npools:\n%s%s",
		listen, other, rig.OnePool("web", "first", "", a), rig.OnePool("other", "first", "", a))
	one := rig.OneService(listen, "first", a)
	p := rig.Start(t, two)
	defer watch(t, p, 2)() // the connection that is held and, for a moment, that of ask
	c := rig.Dial(t, other)
	c.MustAsk(t)
	p.MustReload(t, one)
	if _, err := net.Dial("tcp", other); err == nil {
		t.Error("a removed listener accepts")
	}
	s := p.Status(t)
	if len(s.Services) != 2 || s.Services[0].Name != "other" || s.Services[0].State != "draining" || s.Services[0].Connections != 1 || len(s.Pools) != 2 {
		t.Errorf("%+v", s)
	}
	p.MustReload(t, two)
	if s := p.Status(t); s.Services[0].State != "up" || s.Services[0].Connections != 1 || s.Services[0].Total != 1 || s.Pools[0].Backends[0].State != "up" {
		t.Errorf("%+v", s)
	}
	if _, err := rig.Ask(other); err != nil {
		t.Error(err)
	}
	c.MustAsk(t)
	p.MustReload(t, one)
	c.MustAsk(t)
	c.Close()
	rig.Eventually(t, "the service and its pool to go", func() bool {
		s := p.Status(t)
		return len(s.Services) == 1 && len(s.Pools) == 1
	})
	if n := p.Metrics(t).Sum("poise_service_connections_total", `service="other"`); n != 0 {
		t.Errorf("its series are left: %v", n)
	}
}
