package loop

import "time"

// A Spread does a number of things evenly over some time. It keeps no list of them,
// which would have to learn of every one that is done otherwise: at each step it is
// told how many are left and says how many of those are due.
type Spread struct{ until, pace time.Duration }

// spreadPace is the shortest time between two steps.
const spreadPace = 20 * time.Millisecond

// SpreadOver begins a Spread at now, a loop's time, over d; 0 is at once.
func SpreadOver(d, now time.Duration) Spread {
	return Spread{until: now + max(d, 0), pace: max(d/100, spreadPace)}
}

// Step returns how many of the n > 0 that are left are due at now, and how much later
// the next step is; 0 if this is the last one.
func (s Spread) Step(n int, now time.Duration) (due int, wait time.Duration) {
	left := s.until - now
	if left <= 0 {
		return n, 0
	}
	steps := int(left/s.pace) + 1
	// With fewer things than steps the last ones wait.
	return (n + steps - 1) / steps, min(max(s.pace, left/time.Duration(n)), left)
}
