package udp

import (
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// ports is the budget of local ports that sessions have at one source address, or, if
// the system chooses that, at all: a UDP socket that has none yet gets one that nobody
// on the host uses. The others, DNS queries and our own checks among them, need some
// too, so sessions have three quarters of the range. That also keeps ports cheap: the
// kernel tries one after the other until one is free, and with none left it takes
// more than a millisecond to find out.
type ports struct {
	limit atomic.Int64 // for used
	used  atomic.Int64 // by sessions, open or leaving
	dry   atomic.Int64 // the kernel has had none: what is used must not exceed low until then
	low   atomic.Int64
}

// drought is how long nobody tries again to have more ports when the kernel has had
// none.
const drought = 50 * time.Millisecond

// started is what ports.dry counts from, without regard to the wall clock.
var started = time.Now()

// take reserves a port. It is false too while the kernel has had none.
func (p *ports) take() bool {
	limit := p.limit.Load()
	if p.isDry() {
		limit = min(limit, p.low.Load())
	}
	if p.used.Add(1) <= limit {
		return true
	}
	p.used.Add(-1)
	return false
}

func (p *ports) give() { p.used.Add(-1) }

// runDry notes that the kernel has no port left. Until a few sessions have ended, or
// the drought has, no more are asked for: each time the loop and all it serves would
// wait.
func (p *ports) runDry() {
	used := p.used.Load()
	p.low.Store(used - used/64 - 1)
	p.dry.Store(int64(time.Since(started) + drought))
}

// isDry reports whether the kernel has had no port a moment ago.
func (p *ports) isDry() bool {
	until := p.dry.Load()
	if until == 0 {
		return false
	}
	if int64(time.Since(started)) < until {
		return true
	}
	p.dry.CompareAndSwap(until, 0)
	return false
}

// portLimit is the limit of every budget.
func portLimit() int64 {
	first, last := sock.LocalPorts()
	return max((int64(last)-int64(first)+1)*3/4, 1)
}
