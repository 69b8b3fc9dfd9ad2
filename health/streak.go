package health

// Streak turns a row of observations into up or down with hysteresis: Rise
// successes in a row make it up, Fall failures in a row make it down, and one
// observation of the other kind starts the row again. It is pure; the zero value
// is down, waiting for one success.
type Streak struct {
	Rise, Fall int // below 1 counts as 1; may be changed at any time

	up      bool
	settled bool // a verdict was reached since the start or the last restart
	last    bool // the latest observation
	run     int  // how many of its kind in a row
}

// NewStreak returns a streak that is up or down until its observations say
// otherwise.
func NewStreak(up bool, rise, fall int) Streak { return Streak{Rise: rise, Fall: fall, up: up} }

// Observe takes one observation and returns the state after it, and whether it
// made the state change.
func (s *Streak) Observe(ok bool) (up, changed bool) {
	if ok != s.last {
		s.last, s.run = ok, 0
	}
	need := s.Fall
	if ok {
		need = s.Rise
	}
	need = max(need, 1)
	if s.run < need { // reaching it is all that counts, and so run cannot overflow
		s.run++
	}
	if s.run >= need {
		changed = s.up != ok
		s.up, s.settled = ok, true
	}
	return s.up, changed
}

// Up is the state.
func (s *Streak) Up() bool { return s.up }

// turning reports whether the verdict is open: none was reached yet, or the
// latest observations speak against it.
func (s *Streak) turning() bool { return !s.settled || s.run > 0 && s.last != s.up }

// restart keeps the state but forgets the observations: what comes next answers
// another question.
func (s *Streak) restart() { s.run, s.settled = 0, false }

// force sets the state without an observation.
func (s *Streak) force(up bool) { s.up, s.settled, s.run = up, true, 0 }
