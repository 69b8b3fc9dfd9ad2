package balance

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pool is a set of backends and the algorithm that chooses among them. All
// methods are safe for concurrent use; Acquire takes no lock.
type Pool struct {
	// Set once.
	name   string
	rand   func() uint64
	memory Memory
	line   *Line

	// mu guards the following, every flag, weight and limit of a backend, and
	// the order in which views are published.
	mu        sync.Mutex
	spec      Spec
	backends  []*Backend                  // configured, in that order
	addresses map[netip.AddrPort]struct{} // of backends; immutable
	leaving   []*Backend                  // removed, perhaps still with leases
	populated bool                        // has had backends
	version   uint64                      // of the view
	watch     func()                      // is told of each; nil = no other data path
	installed uint64                      // version that the other data path goes by
	sticky    *stickyTable
	step      *time.Timer // the next step of a slow start; nil = nobody is in one

	view     atomic.Pointer[view] // written by rebuildLocked only
	queue    queue
	budget   atomic.Pointer[budgetTerm]
	denied   atomic.Uint64 // retries it did not allow
	compared [2]compared
	apart    atomic.Uint64 // turns of a second round-robin, which is compared
	typical  reading       // latency over all backends, µs
	clock    clock
}

// New makes a pool. rnd is the source of all its random choices and must be safe
// for concurrent use; nil = math/rand/v2. Like Update it panics if the spec names
// an algorithm that does not exist: configuration must have refused it.
func New(spec Spec, rnd func() uint64) *Pool { return NewIn(Memory{}, spec, rnd) }

// NewIn is New of a pool that counts in memory which another data path shares.
func NewIn(m Memory, spec Spec, rnd func() uint64) *Pool {
	if rnd == nil {
		rnd = rand.Uint64
	}
	now := time.Now()
	p := &Pool{name: spec.Name, rand: rnd, memory: m, clock: clock{start: now, from: m.Clock}}
	if p.line = m.Line; p.line == nil {
		p.line = new(Line)
	}
	p.line.Waiting.Store(0) // of a process before
	p.queue.waiting = &p.line.Waiting
	p.budget.Store(&budgetTerm{start: now})
	p.Update(spec)
	return p
}

// Update makes the pool what spec says; the name, the table of sticky sources and
// those who wait in the queue stay. Backends whose ID is in
// both keep their flags, counters, leases and the operator's weight. Those that are gone get the flag
// Removed and are returned; they are in Leaving until their last lease is
// released, and one that is configured again before that comes back with its
// counters and its Initial flags. Within spec the IDs must differ; of equal ones
// the first counts.
func (p *Pool) Update(spec Spec) (removed []*Backend) {
	for _, algorithm := range spec.Algorithms() {
		if algorithm.New == nil {
			panic(fmt.Sprintf("balance: pool %q: no algorithm %q", spec.Name, algorithm.Word))
		}
	}
	spec.Name = p.name
	spec = spec.clone()

	defer p.serve()
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
	p.createLocked(spec, known)
	for _, s := range spec.Backends {
		b := known[s.id()]
		if seen[b] {
			continue
		}
		seen[b] = true
		next = append(next, b)
		b.configured = min(max(s.Weight, 0), maxWeight)
		b.backup.Store(s.Backup)
		b.load.Limit.Store(int64(s.MaxConnections))
		if b.Flags()&Removed != 0 {
			b.flags.Store(uint32(s.Initial &^ Removed))
			b.trial.Store(nil)
			b.override = -1
		}
		b.weightLocked()
	}
	for _, b := range p.backends {
		if !seen[b] {
			b.flags.Or(uint32(Removed))
			b.gone = p.version + 1
			b.inUse = false
			removed = append(removed, b)
		}
	}
	p.leaving = slices.DeleteFunc(append(p.leaving, removed...), func(b *Backend) bool { return seen[b] })
	p.spec, p.backends = spec, next
	p.addresses = make(map[netip.AddrPort]struct{}, len(next))
	for _, b := range next {
		p.addresses[b.Addr().AddrPort] = struct{}{}
	}
	switch s := spec.Sticky; {
	case s == nil:
		p.sticky = nil
	case p.sticky == nil:
		p.sticky = newStickyTable(s.Size)
	default:
		p.sticky = p.sticky.resized(s.Size)
	}
	p.rebuildLocked()
	p.pruneLocked()
	return removed
}

// createLocked adds the backends of spec that are not known. p.mu is held.
func (p *Pool) createLocked(spec Spec, known map[BackendID]*Backend) {
	var fresh []BackendID
	for _, s := range spec.Backends {
		if _, is := known[s.id()]; !is {
			known[s.id()] = nil // of equal ones the first counts
			fresh = append(fresh, s.id())
		}
	}
	if len(fresh) == 0 {
		return
	}
	loads := heap
	if p.memory.Loads != nil {
		loads = p.memory.Loads
	}
	earned := make([]estimates, len(fresh))
	for i, load := range loads(fresh) {
		b := &Backend{id: fresh[i], owner: p, load: load, earned: &earned[i], shared: p.memory.Loads != nil, override: -1}
		b.flags.Store(uint32(Removed)) // it comes back from nowhere
		known[b.id] = b
	}
}

// SetFlag sets or clears reasons of one configured backend and reports whether
// anything changed. It does nothing for an unknown ID, and nothing to Removed,
// which is Update's.
func (p *Pool) SetFlag(id BackendID, f Flag, on bool) (changed bool) {
	return p.change(id, func(b *Backend) bool {
		old := b.Flags()
		now := old &^ (f &^ Removed)
		if on {
			now = old | f&^Removed
		}
		b.flags.Store(uint32(now))
		return now != old
	})
}

// SetWeight gives one configured backend the operator's weight, 0 to 65535, in
// place of the configured one, which -1 restores. It holds through Updates for as
// long as the backend is configured. It reports whether anything changed.
func (p *Pool) SetWeight(id BackendID, w int) (changed bool) {
	return p.change(id, func(b *Backend) bool {
		old := b.Weight()
		b.override = min(max(w, -1), maxWeight)
		b.weightLocked()
		return b.Weight() != old
	})
}

// SetTrial makes one configured backend half-open: as long as no flag keeps it
// out, it gets at most n more leases, each at the next occasion; -1 ends that and
// it is a member like any other. Its writer is the outlier detector, which calls
// it before it clears Ejected. A trial that is released without a Report is given
// back. It reports whether the backend is configured.
func (p *Pool) SetTrial(id BackendID, n int) (known bool) {
	p.change(id, func(b *Backend) bool {
		known = true
		if n < 0 {
			return b.trial.Swap(nil) != nil
		}
		t := new(trial)
		t.left.Store(int64(n))
		b.trial.Store(t)
		return true
	})
	return known
}

// change applies f to one configured backend and publishes what came of it, if f
// reports that something did.
func (p *Pool) change(id BackendID, f func(*Backend) bool) (changed bool) {
	p.mu.Lock()
	if i := slices.IndexFunc(p.backends, func(b *Backend) bool { return b.id == id }); i >= 0 {
		changed = f(p.backends[i])
	}
	if changed {
		p.rebuildLocked()
	}
	p.mu.Unlock()
	if changed {
		p.serve()
	}
	return changed
}

// weightLocked makes the weight what configuration and operator say. The pool's mu
// is held.
func (b *Backend) weightLocked() {
	w := b.configured
	if b.override >= 0 {
		w = b.override
	}
	b.weight.Store(uint32(w))
}

// pruneLocked forgets removed backends without leases. A lease can no longer be
// added to one, because Acquire looks at the view again after it has taken the
// lease, and rebuildLocked has published one without it. Another data path may add one
// until it has installed a plan without the backend. p.mu is held.
func (p *Pool) pruneLocked() {
	p.leaving = slices.DeleteFunc(p.leaving, func(b *Backend) bool {
		return (p.watch == nil || b.gone <= p.installed) && b.Active() == 0
	})
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// Spec returns what the pool was last updated to.
func (p *Pool) Spec() Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec.clone()
}

// Backends returns the configured backends in configured order.
func (p *Pool) Backends() []*Backend { return slices.Clone(p.view.Load().backends) }

// Has reports whether a configured backend has this address, eligible or not.
func (p *Pool) Has(a netip.AddrPort) bool {
	_, has := p.view.Load().addresses[a]
	return has
}

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

// Panicking reports whether so few backends are healthy that the verdicts on all
// are disregarded. It takes no lock, and changes only within Update, SetFlag,
// SetWeight and SetTrial.
func (p *Pool) Panicking() bool { return p.view.Load().panic }

// OnBackup reports whether the backup tier is in use. It takes no lock, and
// changes only within Update, SetFlag, SetWeight and SetTrial: a caller that finds
// it false after such a call, and had found it true before, may move the flows of
// backups back to the primaries.
func (p *Pool) OnBackup() bool { return p.view.Load().backup }
