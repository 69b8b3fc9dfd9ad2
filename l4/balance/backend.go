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
	gone       uint64 // version of the first view without it, once it is removed

	// turn is the part of its period that a round robin still owes this backend
	// before its next turn, in turnUnits; 0 = it never had one.
	turn uint64

	load   *Load      // set once
	earned *estimates // set once
	shared bool       // set once: another data path counts in load as well
}

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
func (b *Backend) Active() int64 { return b.load.Active.Load() }

// Total returns the leases ever granted.
func (b *Backend) Total() uint64 { return b.load.Total.Load() }

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
func (b *Backend) MaxConnections() int { return int(b.load.Limit.Load()) }

// take adds one unit of load unless that would exceed MaxConnections.
func (b *Backend) take() bool {
	if !b.load.take() {
		return false
	}
	if b.shared {
		b.load.Mine.Add(1)
	}
	return true
}

// add adds one unit of load, whatever MaxConnections says.
func (b *Backend) add() {
	b.load.Active.Add(1)
	if b.shared {
		b.load.Mine.Add(1)
	}
}

// give takes one unit of load away.
func (b *Backend) give() {
	if b.shared {
		b.load.Mine.Add(-1)
	}
	b.load.Active.Add(-1)
}
