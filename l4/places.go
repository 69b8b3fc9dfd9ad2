package l4

import "sync/atomic"

// Places counts what a service has open, never more than its limit, not even for a
// moment. The zero value is empty; all methods are safe for concurrent use.
type Places struct{ taken atomic.Int64 }

// Take takes a place, unless limit are taken; a limit of 0 is none.
func (p *Places) Take(limit int) bool {
	if limit == 0 {
		p.taken.Add(1)
		return true
	}
	for {
		n := p.taken.Load()
		if n >= int64(limit) {
			return false
		}
		if p.taken.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Give gives a place back, and returns how many are taken still.
func (p *Places) Give() (left int64) { return p.taken.Add(-1) }

// Taken returns how many are.
func (p *Places) Taken() int64 { return p.taken.Load() }
