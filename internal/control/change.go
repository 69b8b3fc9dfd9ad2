package control

import (
	"context"
	"slices"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/balance"
)

// A Change makes other pools the configured ones. Nothing sees it before Commit, which
// waits for nothing and cannot fail. It ends with Commit or Abort; until then no other
// Change can be planned, and neither discovery nor the end of a leaving pool changes the
// Set.
type Change struct {
	control  *Control
	old      *Set
	next     *Set
	discover func() // makes the names and files of next those that are watched
}

// Plan decides which object of those that exist serves for which of these pools, and
// makes those that are missing. It waits for the Change before to end.
func (c *Control) Plan(pools []config.Pool) *Change {
	c.changing.Lock()
	old := c.Set()
	next := &Set{configured: pools, leaving: slices.Clone(old.leaving)}
	for _, spec := range pools {
		name := spec.Balance.Name
		p := &Pool{Pool: spec}
		if before := old.Pool(name); before != nil {
			p.Live, p.outlier, p.seen = before.Live, before.outlier, before.seen
		} else {
			p.outlier, p.seen = health.NewOutlier(p.Passive, c.circuit), &condition{}
		}
		if i := slices.IndexFunc(next.leaving, func(l leavingPool) bool { return l.Name() == name }); i >= 0 {
			p.Live = next.leaving[i].Pool
			next.leaving = slices.Delete(next.leaving, i, i+1)
		}
		if p.Live == nil {
			p.Live = balance.New(balance.Spec{Name: name, Algorithm: spec.Balance.Algorithm, AB: spec.Balance.AB}, nil)
		}
		next.pools = append(next.pools, p)
	}
	for _, p := range old.pools {
		if next.Pool(p.Balance.Name) == nil {
			next.leaving = append(next.leaving, leavingPool{p.Live, time.Now()})
		}
	}
	return &Change{control: c, old: old, next: next}
}

// Next returns the pools that Commit makes the configured ones, with the backends that
// the configuration gives by address.
func (h *Change) Next() *Set { return h.next }

// Discover reads the files of backends and looks the names up. Files have been read when
// it returns, names if that was quick; the end of ctx ends the waiting for them.
func (h *Change) Discover(ctx context.Context) {
	h.discover = h.control.discovery.prepare(ctx, h.old.configured, h.next.configured)
}

// Abort undoes everything.
func (h *Change) Abort() {
	c := h.control
	if h.discover != nil {
		c.discovery.names.Set(nameTargets(h.old.configured))
	}
	for _, p := range h.next.pools {
		if h.old.Pool(p.Balance.Name) == nil {
			p.outlier.Close()
		}
	}
	h.end()
}

// Commit lets the Change take effect. The connections of pools that have gone still count
// for their passive checks until the caller, who has told the data path, calls retire.
func (h *Change) Commit() (retire func()) {
	c, old, next := h.control, h.old, h.next
	if h.discover != nil {
		h.discover()
	}
	for i, p := range next.pools {
		next.pools[i] = p.with(c.discovery.backends(p.Pool))
	}
	for _, p := range next.pools {
		p.outlier.Update(p.Passive, p.keys())
	}
	var gone []*Pool
	for _, p := range old.pools {
		if next.Pool(p.Balance.Name) == nil {
			gone = append(gone, p)
		}
	}
	c.verdicts.Lock()
	for _, p := range next.pools {
		c.update(p)
	}
	c.operator.forget(next.pools)
	next.index()
	c.set.Store(next)
	for _, p := range gone {
		c.depart(p, p.Live.Backends(), time.Now().Add(settling))
	}
	c.verdicts.Unlock()
	c.journal.keep(next.members)
	c.monitor.Set(next.targets())
	h.end()
	return func() {
		for _, p := range gone {
			p.outlier.Close()
		}
	}
}

// end lets others change the Set again. Those that only try may just have found it taken.
func (h *Change) end() {
	h.control.changing.Unlock()
	h.control.discovery.tell()
}

// prune empties the leaving pools that have settled and forgets those of which no
// backend has a connection left. While a Change is planned nothing is forgotten, because
// it may use one of them again.
func (c *Control) prune(now time.Time) {
	if len(c.Set().leaving) == 0 || !c.changing.TryLock() {
		return
	}
	defer c.discovery.tell() // follow may just have found the lock taken
	defer c.changing.Unlock()
	next := *c.Set()
	next.leaving = nil
	for _, p := range c.Set().leaving {
		settled := now.Sub(p.since) >= settling
		if spec := p.Spec(); settled && len(spec.Backends) > 0 {
			spec.Backends = nil
			p.Update(spec)
		}
		if !settled || len(p.Leaving()) > 0 {
			next.leaving = append(next.leaving, p)
		}
	}
	c.set.Store(&next)
}
