package balance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
)

// Why Acquire grants no lease. Neither is worth waiting for in a loop.
var (
	ErrNoBackend = errors.New("no eligible backend")
	ErrBusy      = errors.New("every eligible backend is at max_connections")
)

// Pool is a set of backends and the algorithm that chooses among them. All
// methods are safe for concurrent use; Acquire takes no lock.
type Pool struct {
	// Set once.
	name string
	rand func() uint64

	// mu guards the following, every flag, weight and limit of a backend, and
	// the order in which views are published.
	mu       sync.Mutex
	spec     Spec
	backends []*Backend // configured, in that order
	leaving  []*Backend // removed, perhaps still with leases

	view atomic.Pointer[view] // written by rebuildLocked only
}

// view is what the data path sees. It is immutable.
type view struct {
	algorithm string
	hash      HashSpec
	members   []Member // eligible, of the tier in use
	picker    Picker   // built from exactly the above
	backends  []*Backend
	leaving   []*Backend
}

// New makes a pool. rnd is the source of all its random choices and must be safe
// for concurrent use; nil = math/rand/v2. Like Update it panics if the spec names
// an algorithm that does not exist: configuration must have refused it.
func New(spec Spec, rnd func() uint64) *Pool {
	if rnd == nil {
		rnd = rand.Uint64
	}
	p := &Pool{name: spec.Name, rand: rnd}
	p.Update(spec)
	return p
}

// Update makes the pool what spec says; the name stays. Backends whose ID is in
// both keep their flags, counters and leases. Those that are gone get the flag
// Removed and are returned; they are in Leaving until their last lease is
// released, and one that is configured again before that comes back with its
// counters and its Initial flags. Within spec the IDs must differ; of equal ones
// the first counts.
func (p *Pool) Update(spec Spec) (removed []*Backend) {
	if Algorithms[spec.Algorithm] == nil {
		panic(fmt.Sprintf("balance: pool %q: no algorithm %q", spec.Name, spec.Algorithm))
	}
	spec.Name = p.name
	spec.Backends = slices.Clone(spec.Backends)

	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[BackendID]*Backend, len(p.backends)+len(p.leaving))
	for _, b := range p.leaving {
		known[b.id] = b
	}
	for _, b := range p.backends {
		known[b.id] = b
	}
	next := make([]*Backend, 0, len(spec.Backends))
	seen := make(map[*Backend]bool, len(spec.Backends))
	var fresh []counters // side by side; see counters
	for i, s := range spec.Backends {
		b := known[s.id()]
		if b == nil {
			if len(fresh) == 0 {
				fresh = make([]counters, len(spec.Backends)-i)
			}
			b = &Backend{id: s.id(), pool: p.name, counters: &fresh[0]}
			fresh = fresh[1:]
			b.flags.Store(uint32(Removed)) // it comes back from nowhere
			known[s.id()] = b
		}
		if seen[b] {
			continue
		}
		seen[b] = true
		next = append(next, b)
		b.weight.Store(uint32(min(max(s.Weight, 0), maxWeight)))
		b.backup.Store(s.Backup)
		b.counters.limit.Store(int64(s.MaxConnections))
		if b.Flags()&Removed != 0 {
			b.flags.Store(uint32(s.Initial &^ Removed))
		}
	}
	for _, b := range p.backends {
		if !seen[b] {
			b.flags.Or(uint32(Removed))
			removed = append(removed, b)
		}
	}
	p.leaving = slices.DeleteFunc(append(p.leaving, removed...), func(b *Backend) bool { return seen[b] })
	p.spec, p.backends = spec, next
	p.rebuildLocked()
	p.pruneLocked()
	return removed
}

// SetFlag sets or clears reasons of one configured backend and reports whether
// anything changed. It does nothing for an unknown ID, and nothing to Removed,
// which is Update's.
func (p *Pool) SetFlag(id BackendID, f Flag, on bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.backends, func(b *Backend) bool { return b.id == id })
	if i < 0 {
		return false
	}
	b := p.backends[i]
	old := b.Flags()
	now := old &^ (f &^ Removed)
	if on {
		now = old | f&^Removed
	}
	if now == old {
		return false
	}
	b.flags.Store(uint32(now))
	p.rebuildLocked()
	return true
}

// rebuildLocked is the one place that decides who is eligible and with which
// weight; it publishes the result. p.mu is held.
func (p *Pool) rebuildLocked() {
	v := &view{
		algorithm: p.spec.Algorithm,
		hash:      p.spec.Hash,
		members:   p.eligibleLocked(false),
		backends:  p.backends,
		leaving:   slices.Clone(p.leaving),
	}
	if len(v.members) == 0 {
		v.members = p.eligibleLocked(true)
	}
	old := p.view.Load()
	switch {
	case old == nil:
		v.picker = p.pickerLocked(v, nil)
	case old.algorithm == v.algorithm && old.hash == v.hash && slices.Equal(old.members, v.members):
		v.picker = old.picker // nothing it was built from changed, and it keeps its place
	default:
		v.picker = p.pickerLocked(v, old.picker)
	}
	p.view.Store(v)
}

func (p *Pool) pickerLocked(v *view, previous Picker) Picker {
	return Algorithms[v.algorithm](Build{Members: v.members, Hash: v.hash, Rand: p.rand, Previous: previous})
}

// eligibleLocked lists one tier. p.mu is held.
func (p *Pool) eligibleLocked(backup bool) (members []Member) {
	for _, b := range p.backends {
		if w := b.Weight(); w > 0 && b.Flags() == 0 && b.Backup() == backup {
			members = append(members, Member{b, uint16(w)})
		}
	}
	return members
}

// pruneLocked forgets removed backends without leases. A lease can no longer be
// added to one, because Acquire looks at the view again after it has taken the
// lease, and rebuildLocked has published one without it. p.mu is held.
func (p *Pool) pruneLocked() {
	p.leaving = slices.DeleteFunc(p.leaving, func(b *Backend) bool { return b.Active() == 0 })
}

// Acquire chooses a backend for f and adds one unit of load to it. A nil skip
// refuses nobody; then the call allocates nothing. Otherwise backends that skip
// refuses are left out: those already tried, usually.
//
// The error is ErrNoBackend if nobody is eligible or skip refuses all who are,
// and ErrBusy if all that are left are at MaxConnections.
func (p *Pool) Acquire(f l4.Flow, skip func(*Backend) bool) (Lease, error) {
	for {
		v := p.view.Load()
		b := v.picker.Pick(f, skip)
		if b == nil {
			return Lease{}, ErrNoBackend
		}
		if !b.counters.take() {
			if b = v.takeAny(f, skip); b == nil {
				return Lease{}, v.whyNone(skip)
			}
		}
		if p.view.Load() == v || p.confirm(b) {
			b.counters.total.Add(1)
			return Lease{b, true}, nil
		}
	}
}

// takeAny picks again, leaving out full backends, until it gets a lease; nil if
// it cannot. With a nil skip it allocates nothing either: a pool that lives near
// its limits is a normal pool.
func (v *view) takeAny(f l4.Flow, skip func(*Backend) bool) *Backend {
	refuse := full
	if skip != nil {
		refuse = func(b *Backend) bool { return full(b) || skip(b) }
	}
	for {
		b := v.picker.Pick(f, refuse)
		if b == nil || b.counters.take() {
			return b
		}
	}
}

func full(b *Backend) bool { return b.counters.full() }

// whyNone tells "all refused" from "all full".
func (v *view) whyNone(skip func(*Backend) bool) error {
	for _, m := range v.members {
		if skip == nil || !skip(m.Backend) {
			return ErrBusy
		}
	}
	return ErrNoBackend
}

// confirm decides whether load just taken on b stands although the view changed
// meanwhile: it does if b is still a member, else it is undone. Taking first and
// looking afterwards is what lets a writer that published a view without b rely
// on b.Active.
func (p *Pool) confirm(b *Backend) bool {
	for {
		v := p.view.Load()
		if !slices.ContainsFunc(v.members, func(m Member) bool { return m.Backend == b }) {
			b.counters.active.Add(-1)
			return false
		}
		if p.view.Load() == v {
			return true
		}
	}
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// Spec returns what the pool was last updated to.
func (p *Pool) Spec() Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	spec := p.spec
	spec.Backends = slices.Clone(spec.Backends)
	return spec
}

// Backends returns the configured backends in configured order.
func (p *Pool) Backends() []*Backend { return slices.Clone(p.view.Load().backends) }

// Leaving returns the removed backends that still have leases.
func (p *Pool) Leaving() []*Backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pruneLocked()
	return slices.Clone(p.leaving)
}

// Eligible returns how many backends new flows are spread over: those of the
// tier in use.
func (p *Pool) Eligible() int { return len(p.view.Load().members) }

// Active returns the leases out on all backends, leaving ones included. It takes
// no lock.
func (p *Pool) Active() (n int64) {
	v := p.view.Load()
	for _, b := range v.backends {
		n += b.Active()
	}
	for _, b := range v.leaving {
		n += b.Active()
	}
	return n
}
