package balance

import "github.com/poise-lb/poise/l4"

// Snapshot is a pool at one moment, in plain values.
type Snapshot struct {
	Name      string
	Algorithm string // "" while two are compared
	Eligible  int    // backends that new flows are spread over
	Active    int64  // leases out, the sum over Backends
	Panic     bool   // too few are healthy: all are used
	Backup    bool   // the backup tier is in use
	Waiting   int    // in the queue
	Sticky    int    // sources remembered
	Denied    uint64 // retries that the budget did not allow
	Backends  []BackendSnapshot

	// Strategies are the two sides of an A/B comparison; empty if there is none.
	Strategies []StrategySnapshot
}

// StrategySnapshot is what became of the flows of one strategy, over the life of
// the pool.
type StrategySnapshot struct {
	Name, Algorithm     string // "a" or "b"
	Sessions            uint64 // new flows; attempts that fail may be more
	Successes, Failures uint64 // attempts that got the backend's first byte, or failed before it
	Latency             l4.HistogramCounts
}

// BackendSnapshot is one backend of a Snapshot.
type BackendSnapshot struct {
	Name           string
	Addr           Address
	Flags          Flag
	State          string // Backend.State
	Weight         int
	Configured     int // weight of the configuration; Weight is the operator's if they differ
	Share          int // percent of its share of new flows that slow start allows by now
	Trials         int // trials left of a half-open backend; -1 = it is not half-open
	Backup         bool
	MaxConnections int
	Active         int64
	Total          uint64
}

// Snapshot returns the configured backends in order, then the leaving ones. No
// change falls into the middle of it; only leases come and go meanwhile.
func (p *Pool) Snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pruneLocked()
	v := p.view.Load()
	s := Snapshot{
		Name: p.name, Eligible: p.Eligible(), Panic: v.panic, Backup: v.backup, Waiting: p.Waiting(),
		Denied: p.denied.Load(),
	}
	if p.sticky != nil {
		s.Sticky = p.sticky.len()
	}
	if v.comparing {
		for i := range v.strategies {
			c := &p.compared[i]
			s.Strategies = append(s.Strategies, StrategySnapshot{
				Name: strategyID(i + 1).String(), Algorithm: v.strategies[i].algorithm.Word,
				Sessions: c.sessions.Load(), Successes: c.successes.Load(), Failures: c.failures.Load(),
				Latency: c.latency.Counts(),
			})
		}
	} else {
		s.Algorithm = p.spec.Algorithm
	}
	for _, list := range [][]*Backend{p.backends, p.leaving} {
		for _, b := range list {
			flags, active := b.Flags(), b.Active()
			s.Active += active
			s.Backends = append(s.Backends, BackendSnapshot{
				Name: b.id.Name, Addr: b.id.Addr, Flags: flags, State: b.State(),
				Weight: b.Weight(), Backup: b.Backup(), MaxConnections: b.MaxConnections(),
				Active: active, Total: b.Total(),
				Configured: b.configured, Share: b.ramp * 100 / rampSteps, Trials: b.trialsLeft(),
			})
		}
	}
	return s
}

// trialsLeft returns the trials left, -1 if the backend is not half-open.
func (b *Backend) trialsLeft() int {
	if t := b.trial.Load(); t != nil {
		return int(t.left.Load())
	}
	return -1
}
