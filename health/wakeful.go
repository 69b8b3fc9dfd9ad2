package health

import (
	"sync"
	"time"
)

// A wakeful watches whether this process runs while a probe is under way: a deadline
// that passes while it is stopped, or starved, says nothing about the backend (case
// O-49). It looks at the clock at a pace; a look that is late by another pace shows that
// nothing ran. A probe that is answered within one pace costs no look at all.
type wakeful struct {
	pace time.Duration // set once

	mu    sync.Mutex // guards the following
	timer *time.Timer
	last  time.Time
	slept bool
	done  bool
}

// looks is how often a probe that takes all its time is looked at.
const looks = 16

func newWakeful(timeout time.Duration) *wakeful {
	w := &wakeful{pace: max(timeout/looks, time.Millisecond), last: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.pace, w.tick)
	return w
}

func (w *wakeful) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return
	}
	w.look(time.Now())
	w.timer.Reset(w.pace)
}

// look requires mu.
func (w *wakeful) look(now time.Time) {
	w.slept = w.slept || now.Sub(w.last) > 2*w.pace
	w.last = now
}

// end stops watching and reports whether there was a time in which nothing ran.
func (w *wakeful) end() (slept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.timer.Stop()
	w.look(time.Now())
	return w.slept
}
