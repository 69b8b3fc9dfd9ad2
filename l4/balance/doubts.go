package balance

import (
	"net/netip"
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/source"
)

// doubts is what retries for doubtful failures have taken of a budget in one window. A
// client that sends nonsense makes as many as it likes. So together they have at most
// half of the budget, and the other half is left to failures that no client can bring
// about. Within their half a source may have as many as it leaves to the others: alone
// it gets half of the half, and each further one brings all shares down. (Queues that
// share a buffer are bounded so: Choudhury and Hahne, 1998.)
//
// Sources are counted in so many places, by a hash that strangers do not know. Two that
// meet in one have the share of one.
type doubts struct {
	seed    uint64
	all     taken
	sources [256]taken
}

// taken is a number of retries.
type taken struct {
	now  atomic.Int32
	last float32 // of the window before
}

// sum is how many there are in the sliding window, of which a part of the last one is left.
func (t *taken) sum(now int32, left float64) float64 { return float64(now) + float64(t.last)*left }

// doubtful returns the account of t's doubtful retries.
func (t *budgetTerm) doubtful(rnd func() uint64) *doubts {
	if d := t.doubts.Load(); d != nil {
		return d
	}
	t.doubts.CompareAndSwap(nil, &doubts{seed: rnd()})
	return t.doubts.Load()
}

func (d *doubts) of(client netip.Addr) *taken {
	return &d.sources[l4.HashAddr(source.Of(client), 0, d.seed)%uint64(len(d.sources))]
}

// take takes a retry of client out of the share, which is how many doubtful ones there
// may be in all, and reports whether it could.
func (d *doubts) take(client netip.Addr, share, left float64) bool {
	own := d.of(client)
	o, a := own.now.Add(1), d.all.now.Add(1)
	if own.sum(o, left)+d.all.sum(a, left)-1 > share { // more than it leaves to others
		d.giveBack(client)
		return false
	}
	return true
}

// giveBack undoes take.
func (d *doubts) giveBack(client netip.Addr) {
	d.of(client).now.Add(-1)
	d.all.now.Add(-1)
}

// following is the account of the next window, with so much of this one.
func (d *doubts) following(part float64) *doubts {
	if d == nil || d.all.now.Load() == 0 {
		return nil
	}
	next := &doubts{seed: d.seed}
	next.all.last = float32(float64(d.all.now.Load()) * part)
	for i := range d.sources {
		next.sources[i].last = float32(float64(d.sources[i].now.Load()) * part)
	}
	return next
}
