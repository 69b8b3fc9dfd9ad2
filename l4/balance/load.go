package balance

import "sync/atomic"

// Load is the part of a backend that every Acquire and Release writes, and all that
// another data path needs to choose by the same rule and to count in the same place. Its
// layout is fixed: eight words in native byte order.
//
// It is kept out of Backend, and those that are made together lie side by side, because
// least-conn reads all of them for each flow: a Backend is larger than a page, and a page
// miss for each would cost more than all the rest. Each fills a cache line of its own, or
// one core's busy backend would take its neighbours from the others.
type Load struct {
	Active     atomic.Int64  // leases out, and flows of the other data path
	Mine       atomic.Int64  // how many of them are leases; counted in shared memory only
	Limit      atomic.Int64  // MaxConnections, 0 = none; rarely written, always read with Active
	Total      atomic.Uint64 // flows ever granted
	Picked     atomic.Uint64 // least-conn, fastest: higher = chosen more recently
	Failing    atomic.Uint64 // flows that failed of late, a penalty
	Refused    atomic.Uint64 // by the other data path: connects that were refused
	Unanswered atomic.Uint64 // by the other data path: connects without an answer
}

// cacheLine is the unit of false sharing; 64 bytes on amd64, and on the arm64
// servers in use (Neoverse, Graviton, Ampere) as well.
const cacheLine = 64

// Line is the part of a pool that another data path needs. Its layout is fixed, too; a line
// in shared memory has the size of a Load, and the rest of its words are the other path's.
type Line struct {
	Step    atomic.Uint64 // round-robin: turns handed out
	Waiting atomic.Int64  // flows in the queue; while there are any, new ones have to come to the pool

	_ [cacheLine - 2*8]byte
}

// Memory is where a pool counts, if another data path counts there too. The zero value is
// the heap.
type Memory struct {
	// Loads returns a Load for each of the backends, which are new to the pool. What a Load
	// holds stays: one that outlived the process before comes with what it has counted. It
	// runs with the pool's lock held and must not call the pool. A Load is in use until its
	// backend is no longer in Leaving.
	Loads func([]BackendID) []*Load
	// Line is of the pool's own; nil = on the heap. Step goes on where it was.
	Line *Line
	// Clock is CLOCK_MONOTONIC in milliseconds now, by which penalties are stamped.
	Clock uint32
}

// heap is Memory.Loads of a pool that has its backends to itself.
func heap(ids []BackendID) []*Load {
	all, loads := make([]Load, len(ids)), make([]*Load, len(ids))
	for i := range all {
		loads[i] = &all[i]
	}
	return loads
}

// full reports whether MaxConnections leases are out.
func (l *Load) full() bool {
	limit := l.Limit.Load()
	return limit > 0 && l.Active.Load() >= limit
}

// take adds one unit of load unless that would exceed MaxConnections. The limit
// holds exactly, however many take at once.
func (l *Load) take() bool {
	limit := l.Limit.Load()
	if limit <= 0 {
		l.Active.Add(1)
		return true
	}
	for {
		n := l.Active.Load()
		if n >= limit {
			return false
		}
		if l.Active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// burden is the load algorithms compare: leases out, and flows that failed of
// late, which keep counting for a while. Otherwise a backend that refuses at once
// would always be the least loaded and get everything.
func (l *Load) burden(k *clock) int64 {
	if l.Failing.Load() != 0 {
		return l.punished(k)
	}
	return l.Active.Load()
}

// punished is the rare case of burden, on its own so that the other is inlined.
func (l *Load) punished(k *clock) int64 {
	return l.Active.Load() + penalty(l.Failing.Load()).at(k.coarse()).flows()
}
