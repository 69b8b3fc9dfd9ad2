// Package control is the only writer of pools: what checks, real traffic, name servers,
// files and the operator say about backends comes together here, and becomes flags,
// weights and members of a balance.Pool.
//
//	c := control.New(log, datapath)
//	change := c.Plan(file.Pools)
//	change.Discover(ctx)
//	retire := change.Commit()
//	go c.Run(ctx)
//
// What the pools of a configuration are is a Set, immutable behind one pointer. One lock,
// verdicts, lets all writers take turns, so that no backend misses a verdict that is
// spoken while it is being made. It is never held across file or network I/O.
package control

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/metrics"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// Datapath is what is asked of the connections and sessions of clients.
type Datapath interface {
	// CloseBackend ends what is open to b, evenly over spread.
	CloseBackend(b *balance.Backend, o l4.Outcome, spread time.Duration)
	// Repeat has other backends asked what b, which has gone down, has not answered.
	Repeat(b *balance.Backend)
	// Ports are those of UDP sessions, which checks keep clear of.
	health.Ports
	// Connections is how many TCP connections are open.
	Connections() int64
	// Flush brings the counters of bytes and datagrams up to date.
	Flush()
	// Stalled is how many of the established connections to b retransmit.
	Stalled(b *balance.Backend) (stalled, established int)
}

// Control is safe for concurrent use. The methods that a Hook of the data path calls
// neither block nor allocate.
type Control struct {
	// Set once.
	log       *slog.Logger
	data      Datapath
	monitor   *health.Monitor
	discovery *discovery
	operator  *operator

	journal journal
	set     atomic.Pointer[Set]

	// changing is held from Plan to the end of the Change, which may take as long as a
	// disk does; others only try to get it.
	changing sync.Mutex

	// verdicts lets writers of pools take turns. It guards the following.
	verdicts   sync.Mutex
	departures map[*balance.Backend]departure
}

// New returns a Control without pools. Close ends it.
func New(log *slog.Logger, data Datapath) *Control {
	c := &Control{
		log: log, data: data, discovery: newDiscovery(log), operator: newOperator(log),
		departures: map[*balance.Backend]departure{},
	}
	c.monitor = health.NewMonitor(c.checked, data)
	c.set.Store(&Set{})
	return c
}

// Load reads what the operator said to an earlier process; "" = nothing is kept.
func (c *Control) Load(path string) { c.operator.load(path) }

// Keep makes path the file that keeps what the operator says; "" = none. It does not
// wait for the disk.
func (c *Control) Keep(path string) { c.operator.use(path) }

// Set returns the pools that are configured now.
func (c *Control) Set() *Set { return c.set.Load() }

// tickPace is how often what only time shows is looked at.
const tickPace = time.Second

// Run follows names and files, writes the operator's file, and looks at what only time
// shows, until ctx ends.
func (c *Control) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { c.discover(ctx) })
	all.Go(func() { c.operator.saver(ctx) })
	all.Go(func() { c.tick(ctx) })
	all.Wait()
}

func (c *Control) tick(ctx context.Context) {
	tick := time.NewTicker(tickPace)
	defer tick.Stop()
	v := silences{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.closeDeparted(now)
			c.prune(now)
			c.findStalled(v, now)
		}
	}
}

// Close ends checks and discovery. Run has ended.
func (c *Control) Close() {
	c.discovery.close()
	c.monitor.Close()
	for _, p := range c.set.Load().pools {
		p.outlier.Close()
	}
}

// Waits returns what cannot get its turn, or "" if all can; within says how long to try.
func (c *Control) Waits(within func(try func() bool) bool) string {
	for _, l := range []struct {
		lock *sync.Mutex
		what string
	}{{&c.verdicts, "verdicts and commands"}, {&c.operator.mu, "commands"}} {
		if !within(l.lock.TryLock) {
			return l.what
		}
		l.lock.Unlock()
	}
	return ""
}

// Overdue returns a check that has not ended so long after its timeout, or "".
func (c *Control) Overdue(patience time.Duration) string { return c.monitor.Overdue(patience) }

// CheckStatus is what the active check of b says; false if there is none.
func (c *Control) CheckStatus(b *balance.Backend) (health.Status, bool) {
	m := c.Set().members[b]
	if m == nil || m.Pool.Check.Type == "none" {
		return health.Status{}, false
	}
	return c.monitor.Status(m.key)
}

// Ejection is what passive checks say of b.
func (c *Control) Ejection(b *balance.Backend) (e health.Ejection) {
	if m := c.Set().members[b]; m != nil {
		e, _ = m.Pool.outlier.Status(m.key)
	}
	return e
}

// StateChanges counts the changes of b's state by author and reason.
func (c *Control) StateChanges(b *balance.Backend) map[metrics.StateChange]uint64 {
	return c.journal.of(b)
}

// Sources describes where the backends of a configured pool come from besides its
// configuration, and how that is.
func (c *Control) Sources(pool string) []admin.Source {
	for _, p := range c.Set().configured {
		if p.Balance.Name == pool {
			return c.discovery.sources(p)
		}
	}
	return nil
}
