package daemon

import (
	"log/slog"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// checked carries the verdict of an active check to the pool. It runs on the
// target's goroutine.
func (d *Daemon) checked(key string, up bool, st health.Status) {
	m := d.judge(key, checkFlag(st))
	if m == nil {
		return
	}
	switch {
	case up:
		m.pool.outlier.Recovered(key)
		d.note(m.Backend, slog.LevelInfo, "backend is up", "active", "passed")
		return
	case st.Standby:
		d.note(m.Backend, slog.LevelInfo, "backend is on standby", "active", string(st.Reason), "detail", st.Detail)
	default:
		d.note(m.Backend, slog.LevelWarn, "backend is down", "active", string(st.Reason), "detail", st.Detail)
	}
	d.data.repeat(m.Backend)
	if m.pool.OnDownClose {
		d.data.closeBackend(m.Backend, l4.BackendDown, m.pool.spread())
	}
}

// byCheck are the flags that an active check decides about.
const byCheck = balance.Down | balance.Standby

// checkFlag is what an active check says; 0 is up.
func checkFlag(st health.Status) balance.Flag {
	switch {
	case st.Up:
		return 0
	case st.Standby:
		return balance.Standby
	}
	return balance.Down
}

// judge gives a member the flag that an active check asks for, or none, and returns it;
// nil if no such key is configured (any more).
func (d *Daemon) judge(key string, f balance.Flag) *member {
	d.verdicts.Lock()
	defer d.verdicts.Unlock()
	m := d.generation.Load().byKey[key]
	if m != nil {
		m.pool.balance.SetFlag(m.ID(), f, true) // first, or it would be up for a moment
		m.pool.balance.SetFlag(m.ID(), byCheck&^f, false)
		m.pool.reckon(m.Backend)
		d.observe(m.pool)
	}
	return m
}

func (m *member) attrs(by string, more ...any) []any {
	return append([]any{
		slog.String("pool", m.PoolName()), slog.String("backend", m.Name()),
		slog.String("address", m.Addr().String()), slog.String("by", by),
	}, more...)
}

// update makes the pool what its specification says, with the flags that are
// due by what monitor, outlier detector and operator have said already: a backend
// that is new under its name may be an old acquaintance, known to be down, and one
// that left and returns may carry a verdict nobody would ever take back.
// d.verdicts is held.
func (d *Daemon) update(p *pool) {
	spec := p.Balance
	due := make([]balance.Flag, len(spec.Backends))
	for i := range spec.Backends {
		b := &spec.Backends[i]
		due[i] = d.flagsDue(p, memberKey(spec.Name, b.Addr), b.Initial)
		b.Initial = due[i] | d.operator.due(memberKey(spec.Name, b.Addr)).flags()
	}
	removed := p.balance.Update(spec)
	const judged = byCheck | balance.Ejected
	for i, b := range spec.Backends {
		id := balance.BackendID{Name: b.Name, Addr: b.Addr}
		p.balance.SetFlag(id, due[i], true)
		p.balance.SetFlag(id, judged&^due[i], false)
		if e, known := p.outlier.Status(memberKey(spec.Name, b.Addr)); known {
			applyCircuit(p.balance, id, e.State, max(p.Passive.HalfOpen, 1))
		}
	}
	d.oblige(p, spec)
	for _, b := range p.balance.Backends() {
		p.reckon(b)
	}
	d.observe(p)
	d.depart(p, removed, time.Now())
}

// flagsDue returns the flags of a backend by what is known of its address;
// initial holds before anything is.
func (d *Daemon) flagsDue(p *pool, key string, initial balance.Flag) balance.Flag {
	f := initial
	if st, known := d.monitor.Status(key); known {
		f = checkFlag(st)
	}
	if e, known := p.outlier.Status(key); known && e.State == health.Open {
		f |= balance.Ejected
	}
	return f
}
