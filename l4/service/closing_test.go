package service_test

import (
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
)

// crowd are clients of whom some are put off at each step.
type crowd struct {
	left, most int // most = that end in one step
	steps      []int
	done       chan struct{}
}

func (c *crowd) Count() int { return c.left }

func (c *crowd) End(n int) int {
	c.steps = append(c.steps, n)
	ended := min(n, c.most)
	if c.left -= ended; c.left == 0 {
		close(c.done)
	}
	return n - ended
}

// All clients end, in steps if they are to take some time, and those that are put off
// in the last step too.
func TestEndEvenly(t *testing.T) {
	r := start(t, 0)
	for _, c := range []struct {
		over       time.Duration
		most       int
		several    bool
		fewestLeft int // in the first step
	}{
		{0, 100, false, 0},
		{0, 30, true, 70},
		{300 * time.Millisecond, 100, true, 60},
	} {
		w := &crowd{left: 100, most: c.most, done: make(chan struct{})}
		r.Loops[:1].Do(func(_ int, l *loop.Loop) {
			service.EndEvenly(l, c.over, w)
			if w.left < c.fewestLeft {
				t.Errorf("over %v: %d are left after the first step", c.over, w.left)
			}
		})
		select {
		case <-w.done:
		case <-time.After(20 * time.Second):
			t.Fatalf("over %v: not all clients end", c.over)
		}
		r.Loops[:1].Do(func(int, *loop.Loop) {
			if (len(w.steps) > 1) != c.several {
				t.Errorf("over %v, %d at once: steps %v", c.over, c.most, w.steps)
			}
		})
	}
}
