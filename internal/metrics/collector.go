package metrics

import (
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/poise-lb/poise/l4/balance"
)

// A Collector is the prometheus.Collector of every metric in names.go. It may be
// scraped by several at once; they take turns.
type Collector struct {
	// Set once.
	src     Source
	version string

	mu       sync.Mutex                          // guards the following, and the source
	services *ledger[string, any, serviceCounts] // of *tcp.Service and *udp.Service
	pools    *ledger[string, *balance.Pool, poolCounts]
	backends *ledger[backendKey, *balance.Backend, backendCounts]
	busy     busyMeter
}

// New returns a collector over src. One collector must serve all scrapes of a
// process: it remembers what has been counted.
func New(src Source, version string) *Collector {
	c := &Collector{src: src, version: version}
	c.services = newLedger[string](readService, addService)
	c.pools = newLedger[string](readPool, addPool)
	c.backends = newLedger[backendKey](c.readBackend, addBackend)
	return c
}

// Describe is part of prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range catalogue {
		ch <- f.Desc
	}
}

// Collect is part of prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch <- buildInfo.value(1, label(c.version), runtime.Version())
	at, ok := c.src.LastReload()
	ch <- reloadSuccess.value(truth(ok))
	ch <- reloadTime.value(float64(at.UnixMicro()) / 1e6)
	c.collectServices(ch)
	c.collectCertificates(ch)
	c.collectPools(ch)
	for i, ratio := range c.busy.ratios(c.src.LoopBusy()) {
		ch <- loopBusy.value(ratio, strconv.Itoa(i))
	}
	for reason, n := range c.src.AcceptErrors() {
		ch <- acceptErrors.value(float64(n), label(reason))
	}
	ch <- logDropped.value(float64(c.src.LogDropped()))
	ch <- accessLogDropped.value(float64(c.src.AccessLogDropped()))
}

// A busyMeter turns what loops have worked so far into what they work of late.
type busyMeter struct{ busy, total []time.Duration }

// leastWindow is the least time a ratio is taken over, so that scrapes in quick
// succession, by two Prometheus servers say, do not show noise.
const leastWindow = time.Second

// ratios returns the busy share of every loop since an earlier call; the first
// time, since the loop began.
func (m *busyMeter) ratios(busy, total []time.Duration) []float64 {
	if len(m.total) != len(total) {
		m.busy, m.total = make([]time.Duration, len(total)), make([]time.Duration, len(total))
	}
	ratios := make([]float64, len(total))
	for i := range total {
		window := total[i] - m.total[i]
		if window > 0 {
			ratios[i] = min(max(float64(busy[i]-m.busy[i])/float64(window), 0), 1)
		}
		if window >= leastWindow {
			m.busy[i], m.total[i] = busy[i], total[i]
		}
	}
	return ratios
}
