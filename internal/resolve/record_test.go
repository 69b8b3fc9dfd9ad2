package resolve

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func members(addrs ...string) (list []Member) {
	for _, a := range addrs {
		list = append(list, Member{Addr: netip.MustParseAddr(a)})
	}
	return list
}

// found is an answer with A records.
func found(ttl time.Duration, addrs ...string) answer {
	return answer{parts: []part{{key: "A", members: members(addrs...)}, {key: "AAAA"}}, ttl: ttl}
}

var (
	none    = answer{empty: "NXDOMAIN"}
	trouble = failed(errors.New("SERVFAIL"))
	limits  = Limits{MinTTL: time.Second, MaxTTL: 5 * time.Minute, Hold: time.Minute}
)

// show is the part of a record that vectors are about.
func (r *record) show() string {
	var out []string
	for _, m := range r.Members {
		out = append(out, m.Addr.String())
	}
	s := r.State.String() + " [" + strings.Join(out, " ") + "]"
	if r.Detail != "" {
		s += " " + r.Detail
	}
	return s
}

// TestRecord is what becomes of a name by what is heard of it, a step of ten
// seconds each.
func TestRecord(t *testing.T) {
	const (
		good  = "resolved [10.0.0.1]"
		stale = "stale [10.0.0.1] SERVFAIL"
		held  = "held [10.0.0.1] NXDOMAIN"
	)
	one := found(time.Second, "10.0.0.1")
	halfDenied := answer{
		parts: []part{{key: "A", err: errors.New("SERVFAIL"), denied: true}, {key: "AAAA", denied: true}},
		empty: "NXDOMAIN",
	}
	type step struct {
		answer  answer
		want    string
		changed bool
	}
	for name, steps := range map[string][]step{
		"trouble keeps members for ever": {{one, good, true}, {trouble, stale, true}, {trouble, stale, false}, {trouble, stale, false}, {one, good, true}},
		"trouble from the start":         {{trouble, "unresolved [] SERVFAIL", true}, {trouble, "unresolved [] SERVFAIL", false}, {one, good, true}},
		"no such name from the start":    {{none, "unresolved [] NXDOMAIN", true}, {none, "unresolved [] NXDOMAIN", false}, {one, good, true}},
		"hold, then gone": {
			{one, good, true},
			{none, held, true},
			{none, held, false},
			{none, held, false},
			{none, held, false},
			{none, held, false},
			{none, held, false},
			{none, "unresolved [] NXDOMAIN", true},
			{none, "unresolved [] NXDOMAIN", false},
			{one, good, true},
		},
		"back within the hold time": {{one, good, true}, {none, held, true}, {one, good, true}, {none, held, true}},
		"stale, then no such name":  {{one, good, true}, {trouble, stale, true}, {none, held, true}},
		"a new address":             {{one, good, true}, {found(0, "10.0.0.2"), "resolved [10.0.0.2]", true}, {found(0, "10.0.0.1", "10.0.0.2"), "resolved [10.0.0.1 10.0.0.2]", true}},
		"another order":             {{found(0, "10.0.0.2", "10.0.0.1", "10.0.0.2"), "resolved [10.0.0.1 10.0.0.2]", true}, {found(0, "10.0.0.1", "10.0.0.2"), "resolved [10.0.0.1 10.0.0.2]", false}},
		"one family fails, its addresses stay": {
			{answer{parts: []part{{key: "A", members: members("10.0.0.1")}, {key: "AAAA", members: members("::1")}}}, "resolved [10.0.0.1 ::1]", true},
			{answer{parts: []part{{key: "A", members: members("10.0.0.2")}, {key: "AAAA", err: errors.New("SERVFAIL")}}}, "resolved [10.0.0.2 ::1] SERVFAIL", true},
			{answer{parts: []part{{key: "A", err: errors.New("REFUSED")}, {key: "AAAA", err: errors.New("SERVFAIL")}}}, "stale [10.0.0.2 ::1] REFUSED; SERVFAIL", true},
			{answer{parts: []part{{key: "A", err: errors.New("REFUSED")}, {key: "AAAA"}}}, "stale [10.0.0.2 ::1] REFUSED", false},
			{answer{parts: []part{{key: "A", members: members("10.0.0.3")}, {key: "AAAA"}}}, "resolved [10.0.0.3]", true},
		},
		"no such name for one family, trouble with the other (case O-45)": {
			{one, good, true},
			{halfDenied, stale, true},
			{halfDenied, stale, false},
			{one, good, true},
			{none, held, true},
			{halfDenied, "held [10.0.0.1] SERVFAIL", false},
		},
		"no such name for one family, and the other is not known": {
			{answer{parts: []part{{key: "AAAA", members: members("::1")}}}, "resolved [::1]", true},
			{halfDenied, "held [::1] NXDOMAIN", true},
		},
		"trouble while held: it goes by word only": {
			{one, good, true},
			{none, held, true},
			{trouble, "held [10.0.0.1] SERVFAIL", false},
			{trouble, "held [10.0.0.1] SERVFAIL", false},
			{trouble, "held [10.0.0.1] SERVFAIL", false},
			{trouble, "held [10.0.0.1] SERVFAIL", false},
			{trouble, "held [10.0.0.1] SERVFAIL", false},
			{trouble, "held [10.0.0.1] SERVFAIL", false},
			{trouble, "held [10.0.0.1] SERVFAIL", false},
			{none, "unresolved [] NXDOMAIN", true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r record
			now := time.Unix(1e9, 0)
			for i, s := range steps {
				changed := r.observe(now, s.answer, limits)
				if got := r.show(); got != s.want || changed != s.changed {
					t.Fatalf("step %d: got %s, changed %t; want %s, %t", i, got, changed, s.want, s.changed)
				}
				now = now.Add(10 * time.Second)
			}
		})
	}
}

// TestNoHold: with a hold time of 0 members go at once.
func TestNoHold(t *testing.T) {
	var r record
	now := time.Now()
	r.observe(now, found(0, "10.0.0.1"), Limits{})
	if r.observe(now, none, Limits{}); len(r.Members) != 0 {
		t.Errorf("got %s", r.show())
	}
}

// TestDelay is when the next lookup comes.
func TestDelay(t *testing.T) {
	for _, tt := range []struct {
		ttl         time.Duration
		least, most time.Duration
	}{
		{0, time.Second, 1100 * time.Millisecond},
		{30 * time.Second, 30 * time.Second, 33 * time.Second},
		{time.Hour, 5 * time.Minute, 330 * time.Second},
	} {
		for _, draw := range []float64{0, 0.5, 0.999} {
			var r record
			now := time.Now()
			r.observe(now, found(tt.ttl, "10.0.0.1"), limits)
			if d := r.delay(now, limits, draw); d < tt.least || d > tt.most {
				t.Errorf("TTL %s, draw %v: %s, want %s to %s", tt.ttl, draw, d, tt.least, tt.most)
			}
		}
	}

	// After failures: soon, then as often as an answer would be renewed.
	retries := func(ttl time.Duration) (list []time.Duration) {
		var r record
		now := time.Now()
		if ttl > 0 {
			r.observe(now, found(ttl, "10.0.0.1"), limits)
		}
		for range 40 {
			r.observe(now, trouble, limits)
			list = append(list, r.delay(now, limits, 0))
		}
		return list
	}
	if got, want := fmt.Sprint(retries(time.Second)[:4]), "[250ms 500ms 1s 1s]"; got != want {
		t.Errorf("TTL 1s: %s", got)
	}
	if got, want := fmt.Sprint(retries(0)[:4]), "[250ms 500ms 1s 1s]"; got != want {
		t.Errorf("never resolved: %s", got)
	}
	if got := retries(time.Minute); fmt.Sprint(got[:7]) != "[250ms 500ms 1s 2s 4s 5s 5s]" || got[39] != 5*time.Second {
		t.Errorf("TTL 1m: %s", got)
	}

	// A name under hold is asked for when the time is up.
	var r record
	now := time.Now()
	r.observe(now, found(0, "10.0.0.1"), limits)
	r.observe(now, answer{ttl: time.Hour}, limits)
	if d := r.delay(now, limits, 0.5); d != limits.Hold {
		t.Errorf("held: %s, want %s", d, limits.Hold)
	}
}

// TestRecordInvariants: whatever happens, members only go by a server's word.
func TestRecordInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r record
		now := time.Unix(1e9, 0)
		var refused time.Time // the first of the negative answers since the last good one
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			before := r.Status
			var want []Member
			kind := rapid.IntRange(0, 2).Draw(t, "kind")
			switch kind {
			case 0:
				n := rapid.IntRange(1, 3).Draw(t, "n")
				want = members("10.0.0.1", "10.0.0.2", "10.0.0.3")[:n]
				r.observe(now, found(time.Second, "10.0.0.3", "10.0.0.2", "10.0.0.1"), limits)
				r.observe(now, answer{parts: []part{{key: "A", members: slices.Clone(want)}}}, limits)
				refused = time.Time{}
			case 1:
				want = before.Members
				r.observe(now, trouble, limits)
			case 2:
				if refused.IsZero() {
					refused = now
				}
				if want = before.Members; now.Sub(refused) >= limits.Hold {
					want = nil
				}
				r.observe(now, none, limits)
			}
			if !slices.Equal(r.Members, want) {
				t.Fatalf("after %d: %s, want %v", kind, r.show(), want)
			}
			if (len(r.Members) == 0) != (r.State == Unresolved) || (r.State == Held) != !r.Until.IsZero() {
				t.Fatalf("after %d: %s until %s", kind, r.show(), r.Until)
			}
			if len(r.Members) == 0 {
				refused = time.Time{}
			}
			for _, draw := range []float64{0, 0.99} {
				if d := r.delay(now, limits, draw); d < 100*time.Millisecond || d > limits.MaxTTL+limits.MaxTTL/10 {
					t.Fatalf("delay %s", d)
				}
			}
		}
	})
}
