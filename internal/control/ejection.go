package control

import (
	"log/slog"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4/balance"
)

// circuit carries what real traffic has shown to the pool. It runs on a goroutine
// of the pool's outlier detector.
func (c *Control) circuit(change health.Change) {
	m := c.write(byKey(change.Key), func(m *Member) {
		applyCircuit(m.Pool.Live, m.ID(), change.State, change.Trials)
	})
	if m == nil || change.Cause == health.CauseForgotten {
		return // the removal itself is told
	}
	level, what := slog.LevelInfo, "backend is no longer ejected"
	switch {
	case change.Cause == health.CauseRenewed:
		c.log.Debug("backend gets another trial", m.attrs("passive", "reason", change.Cause, "detail", change.Why)...)
		return
	case change.State == health.Open:
		level, what = slog.LevelWarn, "backend is ejected"
		c.data.Repeat(m.Backend)
	case change.State == health.HalfOpen:
		what = "backend is half-open"
	}
	c.note(m.Backend, level, what, "passive", string(change.Cause), "detail", change.Why)
}

// reckon tells the outlier detector whether a backend can take traffic, which decides
// how many of the others may be ejected. It follows every change of a flag or a weight
// that is not the detector's own. c.verdicts is held.
func (p *Pool) reckon(b *balance.Backend) {
	p.outlier.Idle(memberKey(p.Live.Name(), b.Addr()), b.Flags()&^balance.Ejected != 0 || b.Weight() == 0)
}

// applyCircuit makes the pool do what the state of a circuit asks for. Trials are set
// before the flag goes, so that nobody slips through in between.
func applyCircuit(p *balance.Pool, id balance.BackendID, c health.Circuit, trials int) {
	switch c {
	case health.Open:
		p.SetFlag(id, balance.Ejected, true)
		p.SetTrial(id, -1)
	case health.HalfOpen:
		p.SetTrial(id, trials)
		p.SetFlag(id, balance.Ejected, false)
	case health.Closed:
		p.SetFlag(id, balance.Ejected, false)
		p.SetTrial(id, -1)
	}
}
