package metrics

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Source made of real domain objects.
type fake struct {
	mu        sync.Mutex
	services  []*tcp.Service
	datagrams []*udp.Service
	pools     []*balance.Pool
	checks    map[balance.BackendID]health.Status
	ejections map[balance.BackendID]uint64
	changes   map[balance.BackendID]map[StateChange]uint64
	reloaded  time.Time
	reloadOK  bool
	busy      []time.Duration
	total     []time.Duration
	dropped   uint64

	acceptErrors map[string]uint64
	certificates []Certificate
}

func (f *fake) Services() []*tcp.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.services
}

func (f *fake) UDPServices() []*udp.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.datagrams
}

func (f *fake) Pools() []*balance.Pool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pools
}

func (f *fake) CheckStatus(b *balance.Backend) (health.Status, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st, ok := f.checks[b.ID()]
	return st, ok
}

func (f *fake) Ejections(b *balance.Backend) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ejections[b.ID()]
}

func (f *fake) StateChanges(b *balance.Backend) map[StateChange]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.changes[b.ID()])
}

func (f *fake) LastReload() (time.Time, bool) {
	if f.reloaded.IsZero() {
		return time.Unix(1, 0), true
	}
	return f.reloaded, f.reloadOK
}

func (f *fake) AcceptErrors() map[string]uint64         { return f.acceptErrors }
func (f *fake) LoopBusy() (busy, total []time.Duration) { return f.busy, f.total }
func (f *fake) Certificates() []Certificate             { return f.certificates }
func (f *fake) LogDropped() uint64                      { return 2 * f.dropped }
func (f *fake) BrokenCertificates() int                 { return 0 }
func (f *fake) AccessLogDropped() uint64                { return f.dropped }

func backendSpec(name string, port uint16) balance.BackendSpec {
	addr := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)
	return balance.BackendSpec{Name: name, Addr: balance.Address{AddrPort: addr}, Weight: 100}
}

func poolSpec(name string, backends ...balance.BackendSpec) balance.Spec {
	return balance.Spec{Name: name, Algorithm: "round-robin", Backends: backends}
}

func flow(port uint16) l4.Flow {
	return l4.Flow{Client: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), port)}
}

// series maps "name{label=value,...}" to the metric.
type series map[string]*dto.Metric

// gather scrapes through a pedantic registry, which refuses duplicates and
// whatever was not described.
func gather(t testing.TB, reg prometheus.Gatherer) series {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := series{}
	for _, f := range families {
		for _, m := range f.Metric {
			all[key(f.GetName(), m)] = m
		}
	}
	return all
}

// collect scrapes without a registry, which takes most of the time.
func collect(t testing.TB, c *Collector) series {
	t.Helper()
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		c.Collect(ch)
	}()
	all := series{}
	for metric := range ch {
		var m dto.Metric
		if err := metric.Write(&m); err != nil {
			t.Fatal(err)
		}
		k := key(names[metric.Desc()], &m)
		if all[k] != nil {
			t.Fatal("twice: ", k)
		}
		all[k] = &m
	}
	return all
}

var names = func() map[*prometheus.Desc]string {
	m := map[*prometheus.Desc]string{}
	for _, f := range catalogue {
		m[f.Desc] = f.name
	}
	return m
}()

func key(name string, m *dto.Metric) string {
	var labels []string
	for _, l := range m.Label {
		labels = append(labels, l.GetName()+"="+l.GetValue())
	}
	if labels == nil {
		return name
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

func registry(src Source) *prometheus.Registry {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(New(src, "1.2.3"))
	return reg
}

func number(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.Counter.GetValue()
	case m.GetGauge() != nil:
		return m.Gauge.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

// want compares some series; an absent one is written as -1.
func (s series) want(t testing.TB, when string, values map[string]float64) {
	t.Helper()
	for k, v := range values {
		got := -1.0
		if m := s[k]; m != nil {
			got = number(m)
		}
		if got != v {
			t.Errorf("%s: %s is %v, want %v", when, k, got, v)
		}
	}
}

// A promise holds what must be true of a sequence of scrapes: no counter ever
// falls, though its series went and came back, and no gauge is negative.
type promise struct{ before map[string]float64 }

func (p *promise) check(t testing.TB, s series) {
	t.Helper()
	if p.before == nil {
		p.before = map[string]float64{}
	}
	rising := func(k string, v float64) {
		if v < p.before[k] {
			t.Errorf("%s fell from %v to %v", k, p.before[k], v)
		}
		p.before[k] = v
	}
	for k, m := range s {
		switch {
		case m.Counter != nil:
			rising(k, number(m))
		case m.Gauge != nil && number(m) < 0:
			t.Errorf("%s is %v", k, number(m))
		case m.Histogram != nil:
			rising(k, number(m))
			rising(k+" sum", m.Histogram.GetSampleSum())
			for _, b := range m.Histogram.Bucket {
				rising(fmt.Sprint(k, " le ", b.GetUpperBound()), float64(b.GetCumulativeCount()))
			}
			for i, n := range nativeBuckets(m.Histogram) {
				rising(fmt.Sprint(k, " native ", i), float64(n))
			}
		}
	}
	// A native bucket that is not in the scrape at all has fallen to zero.
	for k := range p.before {
		name, rest, ok := strings.Cut(k, " native ")
		if ok && p.before[k] > 0 && s[name] != nil {
			var i int32
			fmt.Sscan(rest, &i)
			if nativeBuckets(s[name].Histogram)[i] == 0 {
				t.Errorf("%s fell to nothing", k)
			}
		}
	}
}

func nativeBuckets(h *dto.Histogram) map[int32]int64 {
	counts := map[int32]int64{}
	var index int32
	var n int64
	next := 0
	for _, span := range h.PositiveSpan {
		index += span.GetOffset()
		for range span.GetLength() {
			n += h.PositiveDelta[next]
			next++
			counts[index] = n
			index++
		}
	}
	return counts
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
