package daemon

import (
	"fmt"
	"sync"
	"time"
)

const (
	// livePatience is how long a loop may be busy, or a lock held, before it counts as
	// stuck.
	livePatience = time.Second
	// checkPatience is how long after its timeout a check may take to end, and its
	// verdict to be taken.
	checkPatience = 5 * time.Second
)

// Live returns nil while every event loop takes its turns, commands get theirs, and
// checks end.
func (d *Daemon) Live() error { return d.alive(livePatience) }

// alive is Live with another patience. What has come late because this process did not
// run for a while has as long to catch up.
func (d *Daemon) alive(patience time.Duration) error {
	end := time.Now().Add(patience)
	if !d.data.healthy(patience) {
		return fmt.Errorf("an event loop has not answered for %s", patience)
	}
	within := func(try func() bool) bool { return eventually(end, try) }
	for _, l := range []struct {
		lock *sync.Mutex
		what string
	}{{&d.committing, "changes"}, {&d.mu, "reloads"}} {
		if !within(l.lock.TryLock) {
			return fmt.Errorf("%s have waited for %s", l.what, patience)
		}
		l.lock.Unlock()
	}
	if what := d.control.Waits(within); what != "" {
		return fmt.Errorf("%s have waited for %s", what, patience)
	}
	late := ""
	if !eventually(end, func() bool { late = d.control.Overdue(checkPatience); return late == "" }) {
		return fmt.Errorf("the check of %s has not ended %s after its timeout", late, checkPatience)
	}
	return nil
}

// eventually reports whether something is so until the end.
func eventually(end time.Time, so func() bool) bool {
	for !so() {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}
