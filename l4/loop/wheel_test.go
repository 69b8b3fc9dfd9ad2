package loop

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type recorder struct {
	wheel   *wheel
	expired map[*Timer]int64
}

func (r *recorder) Expired(t *Timer) {
	if _, twice := r.expired[t]; twice {
		panic("expired twice")
	}
	r.expired[t] = r.wheel.now
}

func never() bool { return false }

// Every timer expires at its own tick, whatever its distance, the order of
// starting, the steps in which time is served and where those are cut short.
func TestWheelExpiresEachTimerAtItsTick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w wheel
		start := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		w.init(start)
		r := &recorder{wheel: &w, expired: map[*Timer]int64{}}
		running := map[*Timer]bool{}
		distance := rapid.OneOf(rapid.Int64Range(1, 200), rapid.Int64Range(1, 1<<20), rapid.Int64Range(1, farthest))
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			switch rapid.IntRange(0, 3).Draw(t, "operation") {
			case 0, 1:
				timer := &Timer{Owner: r, deadline: w.now + distance.Draw(t, "distance")}
				w.add(timer)
				running[timer] = true
			case 2:
				for timer := range running {
					timer.unlink()
					delete(running, timer)
					break
				}
			case 3:
				to := w.now + distance.Draw(t, "advance")
				for w.advance(to, func() bool { return rapid.IntRange(0, 3).Draw(t, "cut short") == 0 }); w.level >= 0 || w.now < to; {
					if w.level >= 0 && w.next() != w.now {
						t.Fatalf("cut short at %d, next is %d", w.now, w.next())
					}
					w.advance(to, never)
				}
				if w.now != to {
					t.Fatalf("advanced to %d, not %d", w.now, to)
				}
				for timer := range running {
					at, expired := r.expired[timer]
					if due := timer.deadline <= to; due != expired {
						t.Fatalf("at %d: deadline %d, expired %v", to, timer.deadline, expired)
					}
					if expired {
						if at != timer.deadline {
							t.Fatalf("deadline %d, expired at %d", timer.deadline, at)
						}
						delete(running, timer)
					} else if timer.deadline < w.next() {
						t.Fatalf("deadline %d, next wake-up %d", timer.deadline, w.next())
					}
				}
			}
		}
	})
}

// restarter starts its timer again whenever it expires.
type restarter struct {
	wheel *wheel
	every int64
	at    []int64
}

func (r *restarter) Expired(t *Timer) {
	r.at = append(r.at, r.wheel.now)
	t.deadline = r.wheel.now + r.every
	r.wheel.add(t)
}

func TestWheelRestartInExpired(t *testing.T) {
	var w wheel
	w.init(63)
	r := &restarter{wheel: &w, every: 64}
	w.add(&Timer{Owner: r, deadline: 64})
	w.advance(64+64*3, never)
	if want := []int64{64, 128, 192, 256}; !slices.Equal(r.at, want) {
		t.Fatalf("expired at %v, want %v", r.at, want)
	}
}

// stopper stops another timer of the same tick.
type stopper struct{ others []*Timer }

func (s *stopper) Expired(t *Timer) {
	for _, o := range s.others {
		if o != t && o.Running() {
			o.unlink()
		}
	}
}

func TestWheelStopInExpired(t *testing.T) {
	var w wheel
	w.init(0)
	s := &stopper{}
	for range 3 {
		timer := &Timer{Owner: s, deadline: 5}
		s.others = append(s.others, timer)
		w.add(timer)
	}
	w.advance(10, never)
	for _, timer := range s.others {
		if timer.Running() {
			t.Error("a timer still runs")
		}
	}
	if w.next() != -1 {
		t.Errorf("next is %d for an empty wheel", w.next())
	}
}

func TestWheelAllocatesNothing(t *testing.T) {
	var w wheel
	w.init(0)
	r := &restarter{wheel: &w, every: 70, at: make([]int64, 0, 1<<16)}
	for range 100 {
		w.add(&Timer{Owner: r, deadline: 1 + rand.Int64N(100)})
	}
	if n := testing.AllocsPerRun(100, func() { w.advance(w.now+10, never) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type ignorer struct{}

func (ignorer) Expired(*Timer) {}

func BenchmarkWheelStartStop(b *testing.B) {
	var w wheel
	w.init(0)
	timers := make([]Timer, 100_000)
	for i := range timers {
		timers[i] = Timer{Owner: ignorer{}, deadline: 1 + rand.Int64N(100_000)}
		w.add(&timers[i])
	}
	for i := 0; b.Loop(); i++ {
		t := &timers[i%len(timers)]
		t.unlink()
		t.deadline = w.now + 1 + int64(i%5000)
		w.add(t)
	}
}
