package balance

// catchUpShare is how many times its fair share a backend gets that catches up: more
// than one, or it never would, and well below two.
const catchUpShare = 1.5

// catchUp is what follows a slow start under an algorithm that is ByLoad. To it a backend
// at the end of its slow start is the best there is for as long as flows that began before
// it came are open elsewhere: with least-conn it would get every new one. So the backend
// stays in the lane until it has as many flows open as the others, for their weights.
// Pool.mu guards it.
type catchUp struct {
	behind bool
	from   uint64  // Total when it was looked at last
	ratio  float64 // of its load then to that of the others
}

// loads is the load of those that catching up is measured by.
type loads struct{ active, weight int64 }

// over reports whether b has caught up, or never will. Its flows may end sooner than
// those of others, because it is faster; then it has less load for good, and the
// algorithm is right to prefer it. That shows when it has been given several times what
// it holds and holds no more than before.
func (c *catchUp) over(b *Backend, others loads) bool {
	active, weight := b.Active(), int64(b.Weight())
	if (active+1)*others.weight >= others.active*weight {
		return true
	}
	const turnover, atLeast = 4, 64
	given := b.Total() - c.from
	if given < uint64(turnover*max(active, 0)+atLeast) {
		return false
	}
	before := c.ratio
	c.from, c.ratio = b.Total(), float64(active*others.weight)/float64(others.active*weight)
	return before > 0 && c.ratio <= before*1.02
}

// catchUpLocked ends the catching up of those members that have done so, and of all if
// there is none to be measured by: whose slow start is over, or as far as anybody's, and
// who is not catching up. p.mu is held.
func (p *Pool) catchUpLocked(members []Member, top int) {
	var others loads
	for _, m := range members {
		if m.trial.Load() == nil && m.ramp == top && !m.catchUp.behind {
			others.active += m.Active()
			others.weight += int64(m.Weight)
		}
	}
	for _, m := range members {
		if m.catchUp.behind && m.catchUp.over(m.Backend, others) {
			m.catchUp = catchUp{}
		}
	}
}
