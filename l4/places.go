package l4

import "sync/atomic"

// Places counts what a service has open, never more than its limit, not even for a
// moment. The zero value is empty; all methods are safe for concurrent use.
type Places struct {
	own    atomic.Int64
	shared *atomic.Int64 // set once; nil = own
}

// PlacesIn returns Places that count in a word which another data path counts in as well,
// so that the limit holds over both.
func PlacesIn(word *atomic.Int64) Places { return Places{shared: word} }

func (p *Places) taken() *atomic.Int64 {
	if p.shared != nil {
		return p.shared
	}
	return &p.own
}

// Take takes a place, unless limit are taken; a limit of 0 is none.
func (p *Places) Take(limit int) bool {
	taken := p.taken()
	if limit == 0 {
		taken.Add(1)
		return true
	}
	for {
		n := taken.Load()
		if n >= int64(limit) {
			return false
		}
		if taken.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Give gives a place back, and returns how many are taken still.
func (p *Places) Give() (left int64) { return p.taken().Add(-1) }

// Taken returns how many are.
func (p *Places) Taken() int64 { return p.taken().Load() }
