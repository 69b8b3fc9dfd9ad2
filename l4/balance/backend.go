package balance

import (
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
)

// BackendID is a backend's identity within its pool: through any number of
// Updates the same ID is the same Backend with the same counters.
type BackendID struct {
	Name string
	Addr Address
}

// Stats are the counters of one backend. Datapaths write them, metrics read
// them; they never fall while the backend exists.
type Stats struct {
	Connections       atomic.Uint64 // established
	Datagrams         atomic.Uint64 // balanced one by one, to the backend
	BytesIn, BytesOut atomic.Uint64 // from the client, to the client
	ConnectFailures   [l4.NumConnectReasons]atomic.Uint64
	ConnectTime       l4.Histogram // of the connects that succeeded
	FirstByteTime     l4.Histogram // from established to the backend's first byte
}

// Backend is one real server of one pool. Only Pool creates backends; they are
// always used by pointer. All methods are safe for concurrent use.
type Backend struct {
	Stats Stats

	// Set once.
	id    BackendID
	owner *Pool

	// Written by the pool under its mutex, read by anyone.
	flags  atomic.Uint32
	weight atomic.Uint32 // the operator's, else the configured one
	backup atomic.Bool
	trial  atomic.Pointer[trial] // nil = not half-open

	// Pool.mu guards the following.
	configured int       // weight of the configuration
	override   int       // weight of the operator; -1 = none
	inUse      bool      // eligible and not half-open when the view was last built
	usedSince  time.Time // when that began, while slow start lasts; else zero
	ramp       int       // of rampSteps, how much of its share it has reached
	catchUp    catchUp

	// turn is the part of its period that a round robin still owes this backend
	// before its next turn, in turnUnits; 0 = it never had one.
	turn uint64

	counters *counters // set once
}

// counters is the part of a backend that every Acquire and Release writes. It is
// kept out of Backend, and those that are made together lie side by side, because
// least-conn reads all of them for each flow: a Backend is larger than a page, and
// a page miss for each would cost more than all the rest. Each fills a cache line
// of its own, or one core's busy backend would take its neighbours from the others.
type counters struct {
	active atomic.Int64  // leases out
	total  atomic.Uint64 // leases ever granted
	limit  atomic.Int64  // MaxConnections; rarely written, always read with active
	picked atomic.Uint64 // least-conn, fastest: higher = chosen more recently

	// What flows have reported; see measure.go.
	failing reading // flows that failed of late
	smooth  reading // smoothed time to the first byte, µs
	peak    reading // the same, but up at once
	merit   reading // 1/64 to 1, unset = 1
}

// cacheLine is the unit of false sharing; 64 bytes on amd64, and on the arm64
// servers in use (Neoverse, Graviton, Ampere) as well.
const cacheLine = 64

// ID returns the backend's identity within its pool.
func (b *Backend) ID() BackendID { return b.id }

// Name returns the configured name.
func (b *Backend) Name() string { return b.id.Name }

// PoolName returns the name of the pool the backend belongs to.
func (b *Backend) PoolName() string { return b.owner.name }

// Addr returns where the backend listens. It never changes.
func (b *Backend) Addr() Address { return b.id.Addr }

// Active returns the leases out now. For an instant it may include a flow that is
// being moved on because the backend became ineligible while it was chosen.
func (b *Backend) Active() int64 { return b.counters.active.Load() }

// Total returns the leases ever granted.
func (b *Backend) Total() uint64 { return b.counters.total.Load() }

// Flags returns the reasons, if any, why the backend gets no new flows.
func (b *Backend) Flags() Flag { return Flag(b.flags.Load()) }

// State returns the one word for the backend's state that status and metrics show:
// that of its Flags, or "half-open" if it has none and gets trials only.
func (b *Backend) State() string {
	f := b.Flags()
	if f == 0 && b.trial.Load() != nil {
		return halfOpen
	}
	return f.State()
}

// Weight returns the weight, 0 to 65535: the operator's if there is one, else the
// configured one.
func (b *Backend) Weight() int { return int(b.weight.Load()) }

// Backup reports whether the backend waits for all primaries to be ineligible.
func (b *Backend) Backup() bool { return b.backup.Load() }

// MaxConnections returns how many leases may be out at once; 0 = no limit.
func (b *Backend) MaxConnections() int { return int(b.counters.limit.Load()) }

// load is the leases out.
func (c *counters) load() int64 { return c.active.Load() }

// full reports whether MaxConnections leases are out.
func (c *counters) full() bool {
	limit := c.limit.Load()
	return limit > 0 && c.active.Load() >= limit
}

// take adds one unit of load unless that would exceed MaxConnections. The limit
// holds exactly, however many take at once.
func (c *counters) take() bool {
	limit := c.limit.Load()
	if limit <= 0 {
		c.active.Add(1)
		return true
	}
	for {
		n := c.active.Load()
		if n >= limit {
			return false
		}
		if c.active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}
