package health

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/poise-lb/poise/l4/source"
)

// series counts failures in a row; many may report at once, without a lock. It is
// retired when its member has left, so that a late report cannot revive it.
type series struct{ n atomic.Int64 }

const retired = math.MinInt64 / 2

// length is how many failures there are; negative when the series is retired.
func (s *series) length() int64 { return s.n.Load() }

// add counts one failure and returns how many there are. failing counts the series
// that are not empty.
func (s *series) add(failing *atomic.Int64) int64 {
	n := s.n.Add(1)
	if n == 1 {
		failing.Add(1)
	}
	return n
}

// end makes it 0 or retired.
func (s *series) end(failing *atomic.Int64, with int64) {
	for {
		n := s.n.Load()
		if n < 0 || n == with {
			return
		}
		if s.n.CompareAndSwap(n, with) {
			if n > 0 {
				failing.Add(-1)
			}
			return
		}
	}
}

// several is from how many sources doubtful failures count: one host easily has two
// addresses, an IPv4 and an IPv6 one.
const several = 3

// doubts are the failures of one member, since its last answer to anybody, that their
// clients may have brought about.
type doubts struct {
	run series

	mu      sync.Mutex          // guards the following; taken by failures only
	sources [several]netip.Addr // of the run, no two alike
	known   int                 // how many of them there are
}

// doubt counts one, and returns how many there are and whether its source was not
// among those that are known.
func (m *member) doubt(client netip.Addr) (n int64, fresh bool) {
	d, from := &m.doubts, source.Of(client)
	d.mu.Lock()
	defer d.mu.Unlock()
	if n = d.run.add(m.failing); n == 1 {
		d.known = 0 // those of a run that has ended
	}
	for _, s := range d.sources[:d.known] {
		if s == from {
			return n, false
		}
	}
	if d.known == several {
		return n, false
	}
	d.sources[d.known] = from
	d.known++
	return n, true
}

// several reports whether enough sources met with failures.
func (d *doubts) several() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run.length() > 0 && d.known == several
}
