package health

import (
	"strings"
	"testing"
)

// Observations and what follows from them: "+" a success, "-" a failure; "U" up,
// "D" down.
func TestStreakVectors(t *testing.T) {
	for _, tt := range []struct {
		name       string
		up         bool
		rise, fall int
		in, want   string
	}{
		{"stays up", true, 2, 3, "+++++", "UUUUU"},
		{"falls after three", true, 2, 3, "---", "UUD"},
		{"two failures and a success start again", true, 2, 3, "--+--+--+---", "UUUUUUUUUUUD"},
		{"alternating never falls", true, 1, 2, "-+-+-+-+", "UUUUUUUU"},
		{"rises after two", false, 2, 3, "++", "DU"},
		{"success, failure, success is not two", false, 2, 3, "+-+-++", "DDDDDU"},
		{"down and up again", true, 2, 2, "--++--", "UDDUUD"},
		{"thresholds of one follow at once", true, 1, 1, "-+-+", "DUDU"},
		{"thresholds below one count as one", true, 0, -1, "-+", "DU"},
		{"initially down stays so on failures", false, 1, 5, "-------+", "DDDDDDDU"},
		{"the streak before the verdict counts on after it", false, 3, 2, "--+++", "DDDDU"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStreak(tt.up, tt.rise, tt.fall)
			was := tt.up
			var got strings.Builder
			for _, c := range tt.in {
				up, changed := s.Observe(c == '+')
				if changed != (up != was) {
					t.Errorf("changed = %v from %v to %v", changed, was, up)
				}
				if up != s.Up() {
					t.Errorf("Observe says %v, Up %v", up, s.Up())
				}
				was = up
				got.WriteByte("DU"[btoi(up)])
			}
			if got.String() != tt.want {
				t.Errorf("%s gives %s, want %s", tt.in, got.String(), tt.want)
			}
		})
	}
}

func TestStreakTurning(t *testing.T) {
	s := NewStreak(true, 2, 2)
	for i, step := range []struct {
		ok, turning, settled bool
	}{
		{true, true, false}, // no verdict yet
		{true, false, true}, // confirmed
		{false, true, true}, // one failure speaks against it
		{true, false, true}, // and is taken back
		{false, true, true},
		{false, false, true}, // down
		{true, true, true},
		{true, false, true}, // up
	} {
		s.Observe(step.ok)
		if s.turning() != step.turning || s.settled != step.settled {
			t.Errorf("step %d: turning %v, settled %v; want %v, %v", i, s.turning(), s.settled, step.turning, step.settled)
		}
	}
	s.Observe(false)
	s.restart()
	if !s.Up() || !s.turning() {
		t.Error("a restart keeps the state and opens the verdict")
	}
	if up, _ := s.Observe(false); !up {
		t.Error("a failure from before the restart was counted")
	}
}

func TestStreakZeroValue(t *testing.T) {
	var s Streak
	if s.Up() {
		t.Error("up")
	}
	if up, changed := s.Observe(true); !up || !changed {
		t.Error("one success does not raise it")
	}
}

// FuzzStreak compares with an oracle that keeps the whole history. A byte is an
// observation (bit 0) after, now and then, a change of thresholds (upper bits).
func FuzzStreak(f *testing.F) {
	f.Add(true, uint8(2), uint8(3), []byte{0, 0, 1, 0, 0, 0, 1, 1})
	f.Add(false, uint8(1), uint8(1), []byte{1, 0, 1})
	f.Add(true, uint8(0), uint8(9), []byte{0, 0x80, 0x43, 1, 0x82, 0, 0})
	f.Fuzz(func(t *testing.T, up bool, rise, fall uint8, in []byte) {
		s := NewStreak(up, int(rise), int(fall))
		var history []bool
		want := up
		for i, c := range in {
			if c&0x80 != 0 {
				s.Rise, s.Fall = int(c>>1&7), int(c>>4&7)
			}
			ok := c&1 == 1
			history = append(history, ok)
			run := 0
			for run < len(history) && history[len(history)-1-run] == ok {
				run++
			}
			if ok && run >= s.Rise || !ok && run >= s.Fall {
				want = ok
			}
			if got, _ := s.Observe(ok); got != want {
				t.Fatalf("observation %d of %v with rise %d, fall %d: up = %v, want %v", i, in, s.Rise, s.Fall, got, want)
			}
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
