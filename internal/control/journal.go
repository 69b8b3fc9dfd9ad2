package control

import (
	"context"
	"log/slog"
	"maps"
	"sync"

	"github.com/poise-lb/poise/internal/metrics"
	"github.com/poise-lb/poise/l4/balance"
)

// journal counts the changes of state of every backend, by author and reason.
type journal struct {
	mu     sync.Mutex // guards the following
	counts map[*balance.Backend]map[metrics.StateChange]uint64
}

// of returns the counts of b; the map is the caller's.
func (j *journal) of(b *balance.Backend) map[metrics.StateChange]uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.counts[b])
}

func (j *journal) add(b *balance.Backend, c metrics.StateChange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts == nil {
		j.counts = map[*balance.Backend]map[metrics.StateChange]uint64{}
	}
	if j.counts[b] == nil {
		j.counts[b] = map[metrics.StateChange]uint64{}
	}
	j.counts[b][c]++
}

// keep forgets all backends but the members of a generation.
func (j *journal) keep(members map[*balance.Backend]*Member) {
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.DeleteFunc(j.counts, func(b *balance.Backend, _ map[metrics.StateChange]uint64) bool { return members[b] == nil })
}

// note puts a change of a backend's state on record: a line in the log and one
// more in the metrics, both with who made it and why. Every change there is goes
// through here. Author and reason are words of metrics.Authors and metrics.StateReasons.
func (c *Control) note(b *balance.Backend, level slog.Level, what, author, reason string, more ...any) {
	c.journal.add(b, metrics.StateChange{Author: author, Reason: reason})
	c.log.Log(context.Background(), level, what, append([]any{
		slog.String("pool", b.PoolName()), slog.String("backend", b.Name()),
		slog.String("address", b.Addr().String()), slog.String("by", author), slog.String("reason", reason),
	}, more...)...)
}
