package control

import (
	"log/slog"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// checked carries the verdict of an active check to the pool. It runs on the
// target's goroutine.
func (c *Control) checked(key string, up bool, st health.Status) {
	m := c.judge(key, checkFlag(st))
	if m == nil {
		return
	}
	switch {
	case up:
		m.Pool.outlier.Recovered(key)
		c.note(m.Backend, slog.LevelInfo, "backend is up", "active", "passed")
		return
	case st.Standby:
		c.note(m.Backend, slog.LevelInfo, "backend is on standby", "active", string(st.Reason), "detail", st.Detail)
	default:
		c.note(m.Backend, slog.LevelWarn, "backend is down", "active", string(st.Reason), "detail", st.Detail)
	}
	c.data.Repeat(m.Backend)
	if m.Pool.OnDownClose {
		c.data.CloseBackend(m.Backend, l4.BackendDown, m.Pool.spread())
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
func (c *Control) judge(key string, f balance.Flag) *Member {
	return c.write(byKey(key), func(m *Member) {
		m.Pool.Live.SetFlag(m.ID(), f, true) // first, or it would be up for a moment
		m.Pool.Live.SetFlag(m.ID(), byCheck&^f, false)
		m.Pool.reckon(m.Backend)
	})
}

// write has f change what a pool is to do with the member that find returns, which stays
// configured meanwhile, and then follows the pool. It returns the member. Every change
// between two configurations goes through here.
func (c *Control) write(find func(*Set) *Member, f func(*Member)) *Member {
	c.verdicts.Lock()
	defer c.verdicts.Unlock()
	m := find(c.Set())
	if m != nil {
		f(m)
		c.observe(m.Pool)
	}
	return m
}

func byKey(key string) func(*Set) *Member {
	return func(s *Set) *Member { return s.byKey[key] }
}

func (m *Member) attrs(by string, more ...any) []any {
	return append([]any{
		slog.String("pool", m.PoolName()), slog.String("backend", m.Name()),
		slog.String("address", m.Addr().String()), slog.String("by", by),
	}, more...)
}

// update makes the pool what its specification says, with the flags that are
// due by what monitor, outlier detector and operator have said already: a backend
// that is new under its name may be an old acquaintance, known to be down, and one
// that left and returns may carry a verdict nobody would ever take back.
// c.verdicts is held.
func (c *Control) update(p *Pool) {
	spec := p.Balance
	due := make([]balance.Flag, len(spec.Backends))
	for i := range spec.Backends {
		b := &spec.Backends[i]
		due[i] = c.flagsDue(p, memberKey(spec.Name, b.Addr), b.Initial)
		b.Initial = due[i] | c.operator.due(memberKey(spec.Name, b.Addr)).flags()
	}
	removed := p.Live.Update(spec)
	const judged = byCheck | balance.Ejected
	for i, b := range spec.Backends {
		id := balance.BackendID{Name: b.Name, Addr: b.Addr}
		p.Live.SetFlag(id, due[i], true)
		p.Live.SetFlag(id, judged&^due[i], false)
		if e, known := p.outlier.Status(memberKey(spec.Name, b.Addr)); known {
			applyCircuit(p.Live, id, e.State, max(p.Passive.HalfOpen, 1))
		}
	}
	c.applyOrders(p, spec)
	for _, b := range p.Live.Backends() {
		p.reckon(b)
	}
	c.observe(p)
	c.depart(p, removed, time.Now())
}

// flagsDue returns the flags of a backend by what is known of its address;
// initial holds before anything is.
func (c *Control) flagsDue(p *Pool, key string, initial balance.Flag) balance.Flag {
	f := initial
	if st, known := c.monitor.Status(key); known {
		f = checkFlag(st)
	}
	if e, known := p.outlier.Status(key); known && e.State == health.Open {
		f |= balance.Ejected
	}
	return f
}
