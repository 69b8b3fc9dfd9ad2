package loop

import (
	"math/bits"
	"time"
)

// Expirer is told when its Timer runs out.
type Expirer interface {
	// Expired runs on the loop. The timer is stopped and may be started again.
	Expired(t *Timer)
}

// Timer is embedded in whatever it times; the zero value with an owner is a
// stopped timer. It belongs to the loop it is started on.
type Timer struct {
	Owner      Expirer
	deadline   int64 // in ticks
	next, prev *Timer
}

// Running reports whether the timer is in a wheel.
func (t *Timer) Running() bool { return t.next != nil }

func (t *Timer) unlink() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

// A wheel is a hierarchical timing wheel (Varghese and Lauck, SOSP 1987, scheme
// 7): starting, stopping and expiring a timer cost O(1) whatever its duration
// and however many there are. A bitmap of the occupied slots of each level
// finds the next one to look at, so nothing is ticked through.
//
// Level n has 64 slots of 64^n ticks each. A timer waits in the finest level
// that reaches its deadline and moves down as it comes nearer.
type wheel struct {
	now   int64 // the last tick that has been served, or is being so
	level int   // being served, from the highest to 0; -1 = the present tick has been
	used  [levels]uint64
	slots [levels][slotsPerLevel]Timer // heads of circular lists
	aside Timer                        // head of the slot being served
}

const (
	tick          = 4 * time.Millisecond // deadlines are rounded up to it
	levelBits     = 6
	slotsPerLevel = 1 << levelBits
	levels        = 5                           // 64^5 ticks are 49 days
	farthest      = 1<<(levelBits*levels-1) - 1 // what lies beyond is looked at again then
)

func (w *wheel) init(now int64) {
	w.now, w.level = now, -1
	w.aside.next, w.aside.prev = &w.aside, &w.aside
	for l := range w.slots {
		for s := range w.slots[l] {
			head := &w.slots[l][s]
			head.next, head.prev = head, head
		}
	}
}

// add links t, whose deadline is set, into the slot where it belongs.
func (w *wheel) add(t *Timer) {
	distance := min(max(t.deadline-w.now, 0), farthest)
	level := 0
	for distance>>(levelBits*(level+1)) != 0 {
		level++
	}
	slot := (w.now + distance) >> (levelBits * level) & (slotsPerLevel - 1)
	head := &w.slots[level][slot]
	t.prev, t.next = head.prev, head
	head.prev.next, head.prev = t, t
	w.used[level] |= 1 << slot
}

// next returns the earliest tick at which a slot needs serving, or -1. The slot
// of the present tick counts: it fills while lower levels are being served.
func (w *wheel) next() int64 {
	if w.level >= 0 {
		return w.now
	}
	first := int64(-1)
	for level := range w.used {
		if w.used[level] == 0 {
			continue
		}
		// Of the upper levels the present slot has been served already: what is
		// in it lies a whole turn ahead.
		position := w.now >> (levelBits * level)
		if level > 0 {
			position++
		}
		ahead := bits.TrailingZeros64(bits.RotateLeft64(w.used[level], -int(position&(slotsPerLevel-1))))
		at := (position + int64(ahead)) << (levelBits * level)
		if first < 0 || at < first {
			first = at
		}
	}
	return first
}

// advance serves every slot up to tick to: timers that are due expire, in no
// order within a tick, the others move to a finer level. It stops when over, which is
// asked after each timer, says so, and goes on there the next time.
func (w *wheel) advance(to int64, over func() bool) {
	for {
		if w.level < 0 {
			at := w.next()
			if at < 0 || at > to {
				w.now = max(w.now, to)
				return
			}
			w.now = at
			w.level = levels - 1
			for w.level > 0 && at&(1<<(levelBits*w.level)-1) != 0 {
				w.level--
			}
			w.lift()
		}
		for {
			if !w.serve(over) {
				return
			}
			if w.level--; w.level < 0 {
				break
			}
			w.lift()
		}
	}
}

// lift moves the timers of the present slot of the level aside: what is added to it
// from then on must not be met again.
func (w *wheel) lift() {
	slot := w.now >> (levelBits * w.level) & (slotsPerLevel - 1)
	head, list := &w.slots[w.level][slot], &w.aside
	w.used[w.level] &^= 1 << slot
	if head.next == head {
		return
	}
	list.next, list.prev = head.next, head.prev
	list.next.prev, list.prev.next = list, list
	head.next, head.prev = head, head
}

// serve goes through the timers aside and reports whether none is left. Expired may
// start and stop any timer, those aside included; one that is started for the present
// tick waits for the next.
func (w *wheel) serve(over func() bool) bool {
	list := &w.aside
	for list.next != list {
		t := list.next
		t.unlink()
		if t.deadline > w.now {
			w.add(t)
		} else {
			t.Owner.Expired(t)
		}
		if over() {
			return list.next == list
		}
	}
	return true
}
