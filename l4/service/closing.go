package service

import (
	"time"

	"github.com/poise-lb/poise/l4/loop"
)

// Clients are those of a worker that are to end.
type Clients interface {
	// Count returns how many are left.
	Count() int
	// End ends n of them, and returns how many of these it has put off.
	End(n int) (left int)
}

// A closing ends clients evenly over some time, so that they do not all come back at
// once.
type closing struct {
	loop    *loop.Loop
	clients Clients
	spread  loop.Spread
	timer   loop.Timer
}

// putOff is when clients are tried again that were put off in the last step.
const putOff = time.Millisecond

// EndEvenly ends the clients over some time, 0 = at once. It is called on their loop.
func EndEvenly(l *loop.Loop, over time.Duration, c Clients) {
	k := &closing{loop: l, clients: c, spread: loop.SpreadOver(over, l.Now())}
	k.timer.Owner = k
	k.Expired(&k.timer)
}

// Expired is a step.
func (k *closing) Expired(*loop.Timer) {
	n := k.clients.Count()
	if n == 0 {
		return
	}
	due, wait := k.spread.Step(n, k.loop.Now())
	if left := k.clients.End(due); left > 0 && wait == 0 {
		wait = putOff // no other step would take them
	}
	if wait > 0 {
		k.loop.Start(&k.timer, wait)
	}
}
