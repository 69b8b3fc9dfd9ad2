package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// longestSpread bounds over how long the connections to a backend are closed
// whose check is rare.
const longestSpread = 10 * time.Second

// spread is over how long a policy closes connections: one check interval, so
// that it is done within one cycle and clients do not all come back at once.
func (p *pool) spread() time.Duration { return min(p.Check.Interval, longestSpread) }

// mood is what a pool was like when it was last observed. d.verdicts guards it.
type mood struct{ panic, backup bool }

// observe follows a pool whose backends have changed: it tells of panic and of
// the change of tiers, and closes what is open to backups once they are no longer
// needed. d.verdicts is held.
func (d *Daemon) observe(p *pool) {
	now, eligible := mood{p.balance.Panicking(), p.balance.OnBackup()}, p.balance.Eligible()
	if eligible == 0 {
		now.backup = p.mood.backup // who is at the backups can go nowhere else
	}
	before := *p.mood
	*p.mood = now
	name := slog.String("pool", p.balance.Name())
	switch {
	case now.panic && !before.panic:
		d.log.Warn("too few backends are healthy: all are used", name, slog.Int("eligible", eligible), slog.Int("panic", p.Balance.Panic))
	case before.panic && !now.panic:
		d.log.Info("enough backends are healthy again", name, slog.Int("eligible", eligible))
	}
	switch {
	case now.backup && !before.backup:
		d.log.Warn("no primary backend is eligible: backups are used", name, slog.Int("eligible", eligible))
	case before.backup && !now.backup:
		d.log.Info("a primary backend is eligible again", name, slog.Int("eligible", eligible))
		if p.CloseBackupOnRecovery {
			for _, b := range p.balance.Backends() {
				if b.Backup() {
					d.data.closeBackend(b, l4.BackendDown, p.spread())
				}
			}
		}
	}
}

// circuit carries what real traffic has shown to the pool. It runs on a goroutine
// of the pool's outlier detector.
func (d *Daemon) circuit(c health.Change) {
	d.verdicts.Lock()
	m := d.generation.Load().byKey[c.Key]
	if m != nil {
		applyCircuit(m.pool.balance, m.ID(), c.State, c.Trials)
		d.observe(m.pool)
	}
	d.verdicts.Unlock()
	if m == nil || c.Cause == health.CauseForgotten {
		return // the removal itself is told
	}
	level, what := slog.LevelInfo, "backend is no longer ejected"
	switch {
	case c.Cause == health.CauseRenewed:
		d.log.Debug("backend gets another trial", m.attrs("passive", "reason", c.Cause, "detail", c.Why)...)
		return
	case c.State == health.Open:
		level, what = slog.LevelWarn, "backend is ejected"
		d.data.repeat(m.Backend)
	case c.State == health.HalfOpen:
		what = "backend is half-open"
	}
	d.note(m.Backend, level, what, "passive", string(c.Cause), "detail", c.Why)
}

// reckon tells the outlier detector whether a backend can take traffic, which decides
// how many of the others may be ejected. It follows every change of a flag or a weight
// that is not the detector's own. d.verdicts is held.
func (p *pool) reckon(b *balance.Backend) {
	p.outlier.Idle(memberKey(p.balance.Name(), b.Addr()), b.Flags()&^balance.Ejected != 0 || b.Weight() == 0)
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

// departure is a removed backend whose connections may go on for a while.
type departure struct {
	due     time.Time
	spread  time.Duration
	outcome l4.Outcome
}

// depart does with the connections to backends that are removed what their pool's
// on_remove says, from a time on. d.verdicts is held.
func (d *Daemon) depart(p *pool, removed []*balance.Backend, from time.Time) {
	if !p.OnRemove.Close {
		return
	}
	due, outcome := from.Add(p.OnRemove.After), l4.BackendDown
	if p.OnRemove.After > 0 {
		outcome = l4.Drained
	}
	for _, b := range removed {
		if due.After(time.Now()) {
			d.departures[b] = departure{due, p.spread(), outcome}
		} else {
			d.data.closeBackend(b, outcome, p.spread())
		}
	}
}

// dismiss closes the connections of departures that are due, but for those that
// have been configured again.
func (d *Daemon) dismiss(now time.Time) {
	d.verdicts.Lock()
	defer d.verdicts.Unlock()
	members := d.generation.Load().members
	for b, dep := range d.departures {
		switch {
		case members[b] != nil || b.Active() == 0:
			delete(d.departures, b)
		case !now.Before(dep.due):
			delete(d.departures, b)
			d.data.closeBackend(b, dep.outcome, dep.spread)
		}
	}
}

// watchPace is how often what only time shows is looked at.
const watchPace = time.Second

// watch looks at what only time shows, until ctx ends.
func (d *Daemon) watch(ctx context.Context) {
	tick := time.NewTicker(watchPace)
	defer tick.Stop()
	v := vigil{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.dismiss(now)
			d.findStalled(v, now)
		}
	}
}

const (
	// stalledTogether is how many connections stuck in retransmission at once make
	// a backend's death likely enough to look. One or two may have bad networks of
	// their own.
	stalledTogether = 3
	// suspicionLasts is for how long after the last byte to a backend its silence
	// is suspicious.
	suspicionLasts = 15 * time.Second
)

// A vigil is what is known of the bytes of each backend.
type vigil map[*balance.Backend]*vitals

type vitals struct {
	in, out uint64
	sent    time.Time // in has grown
	stalled bool
}

// findStalled has a backend checked at once when several of its connections have
// stalled together, whose host has probably died, instead of waiting for the next
// turn of its check. The kernel is asked only about those who have been sent
// something lately and have not said a word since.
func (d *Daemon) findStalled(v vigil, now time.Time) {
	if d.data.tcp.Active() == 0 {
		clear(v)
		return
	}
	d.data.tcp.Flush()
	members := d.generation.Load().members
	for b := range v {
		if members[b] == nil {
			delete(v, b)
		}
	}
	for b, m := range members {
		if m.pool.Check.Type == "none" || b.Active() < stalledTogether || b.Flags()&byCheck != 0 {
			delete(v, b)
			continue
		}
		if !v.suspicious(b, now) {
			continue
		}
		stalled, established := d.data.tcp.Stalled(b)
		was := v[b].stalled
		v[b].stalled = stalled >= stalledTogether
		if v[b].stalled && !was {
			d.log.Warn("connections to a backend have stalled together: it is checked at once",
				m.attrs("active", "stalled", stalled, "established", established)...)
			d.monitor.ProbeNow(m.key)
		}
	}
}

// suspicious reports whether a backend has been sent something lately and has
// been silent since the last look.
func (v vigil) suspicious(b *balance.Backend, now time.Time) bool {
	in, out := b.Stats.BytesIn.Load(), b.Stats.BytesOut.Load()
	s := v[b]
	if s == nil {
		v[b] = &vitals{in: in, out: out, sent: now}
		return false
	}
	spoke := out != s.out
	if in != s.in {
		s.sent = now
	}
	s.in, s.out = in, out
	if spoke {
		s.stalled = false
	}
	return !spoke && now.Sub(s.sent) < suspicionLasts
}
