package sock

import "sync/atomic"

// Descriptors keeps the data path from using up the process's descriptors, so that
// checks, the admin socket and /metrics still work when clients have taken all they
// can get. The zero value is ready once Measure has been called. All methods are
// safe for concurrent use.
type Descriptors struct {
	used   atomic.Int64 // by the data path
	shared atomic.Int64 // of these, what TakeShare has taken
	aside  atomic.Int64 // out of what is kept back; see Aside
	base   atomic.Int64 // by everything else
	limit  atomic.Int64 // for used
}

// What is kept back: enough for a scrape, the CLI and a handful of probes, and a
// larger part of a larger limit, which more backends and admins will share.
const (
	minReserve = 16
	maxReserve = 256
)

// Measure takes stock of what is in use apart from what was taken.
func (d *Descriptors) Measure() { d.measure(OpenDescriptors) }

func (d *Descriptors) measure(count func() int) {
	// What is taken or given back while they are counted may have been counted or
	// not. To take it for ours errs to the side of the base that is soon right again;
	// to take it for the base's would keep it from clients until the next time.
	before := d.used.Load() + d.aside.Load()
	open := int64(count())
	d.base.Store(max(open-max(before, d.used.Load()+d.aside.Load()), 0))
	d.Refresh()
}

// Refresh reads the process's limit again: it can be changed from outside
// (prlimit).
func (d *Descriptors) Refresh() {
	d.limit.Store(int64(DescriptorLimit()) - d.base.Load() - int64(KeptBack()))
}

// KeptBack returns how many descriptors the data path never takes.
func KeptBack() int { return KeptBackOf(DescriptorLimit()) }

// KeptBackOf is KeptBack under another limit.
func KeptBackOf(limit int) int { return min(max(limit/4, minReserve), maxReserve) }

// LeastLimit returns the smallest limit under which n are left beside what is kept back.
func LeastLimit(n int) int {
	limit := n + minReserve
	for limit-KeptBackOf(limit) < n {
		limit++
	}
	return limit
}

// Aside tells of n descriptors more, or fewer, that are taken out of what is kept
// back, by those who keep to a part of it. Measure would take them for the base, and
// leave less to the data path until the next time.
func (d *Descriptors) Aside(n int) { d.aside.Add(int64(n)) }

// Take reserves n descriptors, or reports that there are not as many left.
func (d *Descriptors) Take(n int64) bool {
	if d.used.Add(n) <= d.limit.Load() {
		return true
	}
	d.used.Add(-n)
	return false
}

// Give takes n descriptors back.
func (d *Descriptors) Give(n int64) { d.used.Add(-n) }

// TakeShare is Take for those who may have half of the budget, all together: what
// strangers use up without a handshake must leave something for everybody else.
func (d *Descriptors) TakeShare(n int64) bool {
	if d.shared.Add(n) <= d.limit.Load()/2 && d.Take(n) {
		return true
	}
	d.shared.Add(-n)
	return false
}

// GiveShare takes back what TakeShare has given.
func (d *Descriptors) GiveShare(n int64) {
	d.shared.Add(-n)
	d.Give(n)
}
