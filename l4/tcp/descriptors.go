package tcp

import (
	"sync/atomic"

	"github.com/poise-lb/poise/l4/sock"
)

// descriptors keeps connections from using up the process's descriptors, so
// that checks, the admin socket and /metrics still work when clients have taken
// all they can get. Whoever is over the limit waits in the accept queue.
type descriptors struct {
	used atomic.Int64 // by connections and pipes
	base atomic.Int64 // by everything else
}

// What is kept back: enough for a scrape, the CLI and a handful of probes, and
// a larger part of a larger limit, which more backends and admins will share.
const (
	minReserve = 16
	maxReserve = 256
)

// measure takes stock of what is in use apart from connections.
func (d *descriptors) measure() {
	d.base.Store(max(int64(sock.OpenDescriptors())-d.used.Load(), 0))
}

// limit is how many descriptors connections may use. The process's limit is
// read each time: it can be changed from outside (prlimit).
func (d *descriptors) limit() int64 {
	all := int64(sock.DescriptorLimit())
	return all - d.base.Load() - min(max(all/4, minReserve), maxReserve)
}

// take reserves n descriptors, or reports that there are not as many left.
func (d *descriptors) take(n, limit int64) bool {
	if d.used.Add(n) <= limit {
		return true
	}
	d.used.Add(-n)
	return false
}

func (d *descriptors) give(n int64) { d.used.Add(-n) }
