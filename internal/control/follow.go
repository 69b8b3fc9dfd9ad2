package control

import (
	"context"
	"log/slog"
	"slices"

	"github.com/poise-lb/poise/l4/balance"
)

// discover makes pools follow what is found, until ctx ends.
func (c *Control) discover(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.discovery.news:
			c.follow()
		}
	}
}

// follow gives every pool the backends that it has now. It is a commit without a
// configuration: nothing in it can fail, and connections stay where they are. While a
// reload is under way it does nothing: that ends with a call of it.
func (c *Control) follow() {
	if !c.changing.TryLock() {
		return
	}
	defer c.changing.Unlock()
	old := c.Set()
	next := &Set{configured: old.configured, leaving: old.leaving}
	var changed []*Pool
	for i, p := range old.pools { // in the order of the configured ones
		backends := c.discovery.backends(old.configured[i])
		if !slices.EqualFunc(backends, p.Balance.Backends, alike) {
			p = p.with(backends)
			changed = append(changed, p)
		}
		next.pools = append(next.pools, p)
	}
	if len(changed) == 0 {
		return
	}
	for _, p := range changed {
		p.outlier.Update(p.Passive, p.keys())
	}
	var added, removed []*balance.Backend
	c.verdicts.Lock()
	for _, p := range changed {
		before := p.Live.Backends()
		c.update(p)
		added = append(added, without(p.Live.Backends(), before)...)
		removed = append(removed, without(before, p.Live.Backends())...)
	}
	next.index()
	c.set.Store(next)
	c.verdicts.Unlock()
	c.monitor.Set(next.targets())
	c.journal.keep(next.members)
	for _, b := range added {
		c.note(b, slog.LevelInfo, "backend is added", "resolver", "added")
	}
	for _, b := range removed {
		c.note(b, slog.LevelInfo, "backend is removed", "resolver", "removed", "connections", b.Active())
	}
}

// without returns the backends of list that others does not have.
func without(list, others []*balance.Backend) []*balance.Backend {
	known := make(map[balance.BackendID]bool, len(others))
	for _, b := range others {
		known[b.ID()] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(b *balance.Backend) bool { return known[b.ID()] })
}

// alike compares but for the flags a backend starts with, which update
// fills in.
func alike(a, b balance.BackendSpec) bool {
	a.Initial, b.Initial = 0, 0
	return a == b
}
