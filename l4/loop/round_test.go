package loop_test

import (
	"slices"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

// These tests count turns, not time: a machine that is slow makes fewer of them.

// turnsInRound is more than there is room for in one round: five turns that last as
// long as they may in each share, and one that begins at its end.
const turnsInRound = 13

// spin works until the loop says that it is enough.
func spin(l *loop.Loop) {
	for !l.Enough() {
		continue
	}
}

// A crowd is descriptors with more work than the loop can do.
type crowd struct {
	l      *loop.Loop
	rounds map[uint64]int // turns in each round
	turns  []int          // of each descriptor
	off    bool
}

func newCrowd(t *testing.T, l *loop.Loop, n int) *crowd {
	c := &crowd{l: l, rounds: map[uint64]int{}, turns: make([]int, n)}
	var fds []int
	for range n {
		fd, _ := pair(t)
		fds = append(fds, fd)
	}
	on(t, l, func() {
		for i, fd := range fds {
			l.Add(fd, handler(func(sock.Events) {
				if c.off {
					return
				}
				c.rounds[l.Rounds()]++
				c.turns[i]++
				spin(l)
				l.Again(fd, sock.Readable)
			}))
		}
	})
	t.Cleanup(func() {
		on(t, l, func() {
			c.off = true
			for _, fd := range fds {
				l.Remove(fd)
				sock.Close(fd)
			}
		})
	})
	return c
}

// Rounds of 50 ms with a hundred peers that move all they can: a round has room for
// some of their turns, they take them one after the other, and who sends a byte is
// told at once.
func TestRoundIsBounded(t *testing.T) {
	const n = 100
	l := run(t)
	c := newCrowd(t, l, n)
	fd, far := pair(t)
	told := make(chan uint64, 16)
	on(t, l, func() {
		l.Add(fd, handler(func(ev sock.Events) {
			if ev&sock.Readable != 0 {
				sock.Read(fd, make([]byte, 1))
				told <- l.Rounds()
			}
		}))
	})
	for first := false; !first; { // until each is known to be busy
		on(t, l, func() {
			if first = slices.Min(c.turns) > 0; first {
				clear(c.turns)
			}
		})
	}
	late := 0
	for range 50 {
		before := l.Rounds()
		far.Write([]byte("x"))
		if after := <-told; after-before > 3 { // the round under way and the next, if this goroutine was not kept waiting
			late++
		}
	}
	if late > 25 {
		t.Errorf("%d of 50 have been told more than 3 rounds later", late)
	}
	on(t, l, func() {
		for _, turns := range c.rounds {
			if turns > turnsInRound {
				t.Errorf("%d turns in one round", turns)
				break
			}
		}
		if least, most := slices.Min(c.turns), slices.Max(c.turns); most-least > 2 {
			t.Errorf("some have had %d turns, others %d", most, least)
		}
		l.Remove(fd)
		sock.Close(fd)
	})
}

// What is posted keeps its order, and leaves room for events and timers in between.
func TestPostedTakeTurns(t *testing.T) {
	const n = 500
	l := run(t)
	c := newCrowd(t, l, 1)
	var order []int
	rounds := map[uint64]int{}
	timers := 0
	var timer loop.Timer
	timer.Owner = expirer(func(*loop.Timer) { timers++; l.Start(&timer, 0) })
	release := make(chan struct{})
	l.Post(func() { l.Start(&timer, 0); <-release }) // so that all come at once
	done := make(chan struct{})
	for i := range n {
		l.Post(func() {
			spin(l)
			order = append(order, i)
			rounds[l.Rounds()]++
			if i == n/2 { // also what is posted while others are left
				l.Post(func() { close(done) })
			}
		})
	}
	close(release)
	<-done
	on(t, l, func() {
		if len(order) != n || !slices.IsSorted(order) {
			t.Errorf("%d have run, or not in order", len(order))
		}
		if timers < 5 || c.turns[0] < n/turnsInRound {
			t.Errorf("meanwhile %d timers have expired, and a descriptor has had %d turns", timers, c.turns[0])
		}
		for _, turns := range rounds {
			if turns > turnsInRound {
				t.Errorf("%d posted functions in one round", turns)
				break
			}
		}
		l.StopTimer(&timer)
	})
}

// So do timers that are due at the same moment.
func TestTimersTakeTurns(t *testing.T) {
	const n = 500
	l := run(t)
	c := newCrowd(t, l, 1)
	timers := make([]loop.Timer, n)
	left := n
	rounds := map[uint64]int{}
	done := make(chan struct{})
	on(t, l, func() {
		for i := range timers {
			timers[i].Owner = expirer(func(*loop.Timer) {
				spin(l)
				rounds[l.Rounds()]++
				if left--; left == 0 {
					close(done)
				}
			})
			l.Start(&timers[i], 8*time.Millisecond)
		}
	})
	<-done
	on(t, l, func() {
		if c.turns[0] < n/turnsInRound {
			t.Errorf("meanwhile a descriptor has had %d turns", c.turns[0])
		}
		for _, turns := range rounds {
			if turns > turnsInRound {
				t.Errorf("%d timers in one round", turns)
				break
			}
		}
	})
}
