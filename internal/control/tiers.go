package control

import (
	"log/slog"
	"time"

	"github.com/poise-lb/poise/l4"
)

// longestSpread bounds over how long the connections to a backend are closed
// whose check is rare.
const longestSpread = 10 * time.Second

// spread is over how long a policy closes connections: one check interval, so
// that it is done within one cycle and clients do not all come back at once.
func (p *Pool) spread() time.Duration { return min(p.Check.Interval, longestSpread) }

// condition is what a pool was like when it was last observed. c.verdicts guards it.
type condition struct{ panic, backup bool }

// observe follows a pool whose backends have changed: it tells of panic and of
// the change of tiers, and closes what is open to backups once they are no longer
// needed. c.verdicts is held.
func (c *Control) observe(p *Pool) {
	now, eligible := condition{p.Live.Panicking(), p.Live.OnBackup()}, p.Live.Eligible()
	if eligible == 0 {
		now.backup = p.seen.backup // who is at the backups can go nowhere else
	}
	before := *p.seen
	*p.seen = now
	name := slog.String("pool", p.Live.Name())
	switch {
	case now.panic && !before.panic:
		c.log.Warn("too few backends are healthy: all are used", name, slog.Int("eligible", eligible), slog.Int("panic", p.Balance.Panic))
	case before.panic && !now.panic:
		c.log.Info("enough backends are healthy again", name, slog.Int("eligible", eligible))
	}
	switch {
	case now.backup && !before.backup:
		c.log.Warn("no primary backend is eligible: backups are used", name, slog.Int("eligible", eligible))
	case before.backup && !now.backup:
		c.log.Info("a primary backend is eligible again", name, slog.Int("eligible", eligible))
		if p.CloseBackupOnRecovery {
			for _, b := range p.Live.Backends() {
				if b.Backup() {
					c.data.CloseBackend(b, l4.BackendDown, p.spread())
				}
			}
		}
	}
}
