package admit

import (
	"net/netip"
	"slices"
	"time"

	"github.com/poise-lb/poise/l4"
)

// Policy is a Spec compiled. A nil Policy admits everybody. Its methods may be
// called from several goroutines; Admit and Release allocate nothing once the
// tables have grown to the number of sources there are.
type Policy struct {
	// Set once.
	lists        lists
	rate, source rate
	perSource    int32
	counts       bool // what is admitted has to be released
	silent       bool
	shared       *lineage
	here         *table   // of the sources as this policy masks them; nil = no need of any
	elsewhere    []*table // other masks, of policies before this one
}

// A lineage is what all policies of one service share through reloads; tables
// they share one by one.
type lineage struct {
	clock func() int64 // ns, monotonic, from 0
	_     [64]byte     // the meter is written by all cores, what is around it is not
	rate  meter
	_     [64]byte
}

// New compiles spec and reads its files. Policies of one service form a lineage
// through old, nil for the first: they share the counts of what is open and the
// rates. old goes on working, so a New that comes to nothing does no harm. The
// error holds all that is wrong in the files, one a line (it has Unwrap() []error),
// with the key of the configuration that names the file and file:line.
func New(spec Spec, old *Policy) (*Policy, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	p := &Policy{
		rate:      newRate(spec.Rate),
		source:    newRate(spec.SourceRate),
		perSource: int32(spec.PerSource),
		counts:    spec.PerSource > 0,
		silent:    spec.Silent,
	}
	if err := p.lists.load(&spec); err != nil {
		return nil, err
	}
	if old == nil {
		start := time.Now()
		p.shared = &lineage{clock: func() int64 { return int64(time.Since(start)) }}
	} else {
		p.shared = old.shared
		// Once a limit has been there, all count: when it comes back after a while
		// it finds those that were admitted without.
		p.counts = p.counts || old.counts
	}
	p.attach(newMasks(spec.Mask4, spec.Mask6), old)
	return p, nil
}

// attach gives p its table, which is old's if that has the same sources.
func (p *Policy) attach(m masks, old *Policy) {
	switch {
	case !p.counts && p.source.unlimited():
		return
	case old == nil || old.here == nil:
		p.here = newTable(m)
		return
	case old.here.masks == m:
		p.here = old.here
	default:
		p.here = newTable(m)
		p.elsewhere = append(p.elsewhere, old.here)
	}
	for _, t := range old.elsewhere {
		if t.open() {
			p.elsewhere = append(p.elsewhere, t)
		}
	}
}

// Admit decides about one more connection or session from a. It returns l4.OK,
// l4.RefusedACL, l4.RefusedRate or l4.RefusedLimit; the package comment has the
// order. What is admitted must be released once when it has ended.
func (p *Policy) Admit(a netip.Addr) l4.Outcome {
	if p == nil {
		return l4.OK
	}
	if !p.lists.permit(a) {
		return l4.RefusedACL
	}
	var now int64
	if !p.rate.unlimited() || !p.source.unlimited() {
		now = p.shared.clock()
	}
	switch {
	case p.here != nil:
		return p.here.admit(a, now, p)
	case !p.shared.rate.take(p.rate, now):
		return l4.RefusedRate
	}
	return l4.OK
}

// Adopt counts one more connection or session from a, without deciding: it is open already,
// in the hands of the process before, and may be one more than PerSource. It takes nothing of
// the rates. It must be released once when it has ended.
func (p *Policy) Adopt(a netip.Addr) {
	if p != nil && p.counts {
		p.here.adopt(a)
	}
}

// Release gives back what Admit has admitted from a: exactly once, to the same
// policy. If that one has a PerSource limit, any later one of its lineage does as
// well.
func (p *Policy) Release(a netip.Addr) {
	if p == nil || !p.counts {
		return
	}
	// Callers who release to the policy that admitted are right here; what others
	// bring was admitted under other masks.
	if p.here.release(a) {
		return
	}
	for _, t := range p.elsewhere {
		if t.release(a) {
			return
		}
	}
}

// Silent reports whether to refuse by silence (drop) and not by a reset.
func (p *Policy) Silent() bool { return p != nil && p.silent }

// Prefixes are the lists of a policy, files included, as few prefixes as will do,
// sorted. A kernel offload takes them as they are.
type Prefixes struct {
	Deny  []netip.Prefix
	Allow []netip.Prefix
	// AllowAll says that there is no allow list. If it is false, an empty Allow
	// admits nobody.
	AllowAll bool
}

// Prefixes returns the compiled lists; the caller owns them.
func (p *Policy) Prefixes() Prefixes {
	if p == nil {
		return Prefixes{AllowAll: true}
	}
	return Prefixes{
		Deny:     slices.Collect(p.lists.deny.AllSorted()),
		Allow:    slices.Collect(p.lists.allow.AllSorted()),
		AllowAll: !p.lists.restricted,
	}
}
