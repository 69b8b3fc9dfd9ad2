package balance

import "time"

// Lease is one unit of load on one backend. Its holder releases it once; it is
// a plain value to be stored in one place and not copied after that, because a
// copy would release the same unit again. The zero value holds nothing.
type Lease struct {
	backend  *Backend
	trial    *trial // the half-open backend's, if this is one of its trials
	strategy strategyID
	held     bool
	reported bool
}

// Adopt adds one unit of load to a backend that is not chosen but given: the flow is open
// to it already, in the hands of the process before. It may exceed MaxConnections, and the
// backend need not be eligible, nor configured any longer, as long as it has leases. The
// zero Lease says that the pool knows no such backend.
func (p *Pool) Adopt(id BackendID) Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pruneLocked()
	for _, list := range [][]*Backend{p.backends, p.leaving} {
		for _, b := range list {
			if b.id == id {
				b.add()
				b.load.Total.Add(1)
				return Lease{backend: b, held: true}
			}
		}
	}
	return Lease{}
}

// Backend returns the backend that was chosen, also after Release; nil for the
// zero Lease.
func (l Lease) Backend() *Backend { return l.backend }

// Strategy returns which strategy of an A/B comparison chose: "a", "b", or "" if
// the pool compares none.
func (l Lease) Strategy() string { return l.strategy.String() }

// Trial reports whether this is one of the trials of a half-open backend.
func (l Lease) Trial() bool { return l.trial != nil }

// Report says how the flow fares: ok when the backend's first byte has come,
// latency after its connect began, or not ok when it failed before that in a way
// that is the backend's fault. Only the first call of a lease counts; the
// algorithms that look at latency or success live on it, least-conn and p2c count
// failures as load for a while, and a half-open backend's trial that ends without
// a report is given back. Not safe for concurrent use; call it before Release.
func (l *Lease) Report(ok bool, latency time.Duration) {
	if l.backend == nil || l.reported {
		return
	}
	l.backend.Report(ok, latency)
	l.conclude(ok, latency)
}

// Doubt is Report of a failure that the client may have brought about.
func (l *Lease) Doubt() {
	if l.backend != nil && !l.reported {
		l.backend.doubted()
		l.conclude(false, 0)
	}
}

func (l *Lease) conclude(ok bool, latency time.Duration) {
	l.reported = true
	if l.strategy != noStrategy {
		l.backend.owner.compared[l.strategy-1].report(ok, latency)
	}
}

// Release gives the unit of load back. Only the first call does anything, and
// unless somebody waits for room it neither locks nor allocates; it is not safe
// for concurrent use.
func (l *Lease) Release() {
	if l != nil && l.held {
		l.release()
	}
}

// release is apart from Release so that the look whether there is anything to
// give back is inlined.
func (l *Lease) release() {
	l.undo()
	if p := l.backend.owner; p.queue.waiting.Load() != 0 {
		p.serve()
	}
}

// undo takes the load back and wakes nobody.
func (l *Lease) undo() {
	l.held = false
	if l.trial != nil && !l.reported {
		l.trial.left.Add(1)
	}
	l.backend.give()
}
