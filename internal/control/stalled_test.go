package control

import (
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/balance"
)

// Whom to ask about stalled connections: those who have been sent something of
// late and have not said a word since the last look.
func TestSuspicion(t *testing.T) {
	v, b, now := silences{}, &balance.Backend{}, time.Now()
	look := func(when string, want bool) {
		t.Helper()
		now = now.Add(tickPace)
		if got := v.suspicious(b, now); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	look("seen first", false)
	look("silent from the beginning", true)
	b.Stats.BytesOut.Add(1)
	look("speaks", false)
	b.Stats.BytesIn.Add(1)
	look("sent something, silent", true)
	v[b].stalled = true
	b.Stats.BytesOut.Add(1)
	look("speaks again", false)
	if v[b].stalled {
		t.Error("an episode that is over goes on")
	}
	now = now.Add(suspicionLasts)
	look("nothing sent for long", false)
	b.Stats.BytesIn.Add(1)
	look("sent something again", true)
}
