package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/poise-lb/poise/l4/balance"
)

// poolCounts is what one pool has counted.
type poolCounts struct {
	denied     uint64
	strategies map[string]strategyCounts // nil if it has never compared two
}

type strategyCounts struct {
	sessions, ok, failed uint64
	latency              durations
}

// readPool keeps what a comparison has counted that a reload has ended since.
func readPool(p *balance.Pool, before poolCounts, _ bool) (n poolCounts) {
	s := p.Snapshot()
	n.denied, n.strategies = s.Denied, before.strategies
	if len(s.Strategies) > 0 {
		n.strategies = make(map[string]strategyCounts, len(s.Strategies))
	}
	for _, st := range s.Strategies {
		c := strategyCounts{sessions: st.Sessions, ok: st.Successes, failed: st.Failures}
		c.latency.set(st.Latency)
		n.strategies[st.Name] = c
	}
	return n
}

func addPool(sum, c *poolCounts) {
	sum.denied += c.denied
	if c.strategies != nil && sum.strategies == nil {
		sum.strategies = make(map[string]strategyCounts, len(c.strategies))
	}
	for name, n := range c.strategies {
		total := sum.strategies[name]
		total.sessions += n.sessions
		total.ok += n.ok
		total.failed += n.failed
		total.latency.add(&n.latency)
		sum.strategies[name] = total
	}
}

// poolGauges is the state of the pools of one name together.
type poolGauges struct {
	eligible, waiting int
	panic             bool
}

func (c *Collector) emitPools(ch chan<- prometheus.Metric, pools map[*balance.Pool]string) {
	gauges := map[string]poolGauges{}
	for p, name := range pools {
		g := gauges[name]
		g.eligible += p.Eligible()
		g.waiting += p.Waiting()
		g.panic = g.panic || p.Panicking()
		gauges[name] = g
	}
	for name, n := range c.pools.totals(pools) {
		g := gauges[name]
		ch <- poolEligible.value(float64(g.eligible), name)
		ch <- poolPanic.value(truth(g.panic), name)
		ch <- poolQueue.value(float64(g.waiting), name)
		ch <- poolRetriesDenied.value(float64(n.denied), name)
		for strategy, st := range n.strategies {
			ch <- strategySessions.value(float64(st.sessions), name, strategy)
			ch <- strategyAttempts.value(float64(st.ok), name, strategy, "ok")
			ch <- strategyAttempts.value(float64(st.failed), name, strategy, "failed")
			ch <- &histogram{strategyDuration, []string{name, strategy}, &st.latency}
		}
	}
}
