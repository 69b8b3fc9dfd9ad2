package balance

import (
	"sync/atomic"

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
	id   BackendID
	pool string

	// Written by the pool under its mutex, read by anyone.
	flags  atomic.Uint32
	weight atomic.Uint32
	backup atomic.Bool

	// turn is the part of its period that a round robin still owes this backend
	// before its next turn, in turnUnits; 0 = it never had one. Pool.mu guards it.
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
	picked atomic.Uint64 // least-conn: higher = chosen more recently
	_      [cacheLine - 4*8]byte
}

// cacheLine is the unit of false sharing; 64 bytes on amd64, and on the arm64
// servers in use (Neoverse, Graviton, Ampere) as well.
const cacheLine = 64

// ID returns the backend's identity within its pool.
func (b *Backend) ID() BackendID { return b.id }

// Name returns the configured name.
func (b *Backend) Name() string { return b.id.Name }

// PoolName returns the name of the pool the backend belongs to.
func (b *Backend) PoolName() string { return b.pool }

// Addr returns where the backend listens. It never changes.
func (b *Backend) Addr() Address { return b.id.Addr }

// Active returns the leases out now. For an instant it may include a flow that is
// being moved on because the backend became ineligible while it was chosen.
func (b *Backend) Active() int64 { return b.counters.active.Load() }

// Total returns the leases ever granted.
func (b *Backend) Total() uint64 { return b.counters.total.Load() }

// Flags returns the reasons, if any, why the backend gets no new flows.
func (b *Backend) Flags() Flag { return Flag(b.flags.Load()) }

// Weight returns the configured weight, 0 to 65535.
func (b *Backend) Weight() int { return int(b.weight.Load()) }

// Backup reports whether the backend waits for all primaries to be ineligible.
func (b *Backend) Backup() bool { return b.backup.Load() }

// MaxConnections returns how many leases may be out at once; 0 = no limit.
func (b *Backend) MaxConnections() int { return int(b.counters.limit.Load()) }

// load is what algorithms compare.
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

// Lease is one unit of load on one backend. Its holder releases it once; it is
// a plain value to be stored in one place and not copied after that, because a
// copy would release the same unit again. The zero value holds nothing.
type Lease struct {
	backend *Backend
	held    bool
}

// Backend returns the backend that was chosen, also after Release; nil for the
// zero Lease.
func (l Lease) Backend() *Backend { return l.backend }

// Release gives the unit of load back. Only the first call does anything, and
// it neither locks nor allocates; it is not safe for concurrent use.
func (l *Lease) Release() {
	if l == nil || !l.held {
		return
	}
	l.held = false
	l.backend.counters.active.Add(-1)
}
