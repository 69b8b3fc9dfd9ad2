package balance

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
)

// strategyID tells which of the two strategies of an A/B comparison chose.
type strategyID uint8

const (
	noStrategy strategyID = iota // nothing is compared
	strategyA
	strategyB
)

func (s strategyID) String() string { return [...]string{"", "a", "b"}[s] }

// strategy is an algorithm with the picker it built. A pool has one, or two that
// it compares.
type strategy struct {
	algorithm Algorithm
	members   []Member // what picker was built from
	picker    Picker
}

// compared counts what became of the flows of one strategy. The counters stay
// when a reload changes what a strategy is: they never fall.
type compared struct {
	sessions, successes, failures atomic.Uint64
	latency                       l4.Histogram
}

func (c *compared) report(ok bool, latency time.Duration) {
	if !ok {
		c.failures.Add(1)
		return
	}
	c.successes.Add(1)
	c.latency.Observe(latency)
}

// strategySeed keys the hash that gives a flow its strategy; it differs from
// maglevSeed so that a strategy's clients are not those of one part of a table.
const strategySeed = 0x61622d73706c6974

// of returns the strategy that a flow gets. It is a function of the client's
// address and port: every attempt of a flow gets the same, and connections of one
// client are spread over both.
func (v *view) of(f l4.Flow) (*strategy, strategyID) {
	switch {
	case !v.comparing:
		return &v.strategies[0], noStrategy
	case v.splitAll || f.Hash(strategySeed^v.seed) < v.split:
		return &v.strategies[0], strategyA
	}
	return &v.strategies[1], strategyB
}

// splitOf turns a part into a bound for a hash; all is true for the whole.
func splitOf(part float64) (bound uint64, all bool) {
	if part >= 1 {
		return 0, true
	}
	return uint64(max(part, 0) * math.Exp2(64)), false
}
