package keyed_test

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/poise-lb/poise/internal/keyed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is one that does nothing but live.
type member struct {
	life *keyed.Life
	said int // how often it was added or changed
}

// TestSetFollowsList: whatever lists follow one another, the members are those of the
// last, one that stays is the same one, and one that has gone has ended.
func TestSetFollowsList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s keyed.Set[int, *member]
		defer s.Close()
		model := map[int]*member{}
		for range rapid.IntRange(1, 20).Draw(t, "lists") {
			keys := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 8).Draw(t, "keys")
			next := map[int]*member{}
			s.Replace(
				keys,
				func(i int, l *keyed.Life) *member {
					if model[keys[i]] != nil || next[keys[i]] != nil {
						t.Errorf("%d is added again", keys[i])
					}
					m := &member{life: l, said: 1}
					l.Go(func() { <-l.Done() })
					next[keys[i]] = m
					return m
				},
				func(i int, m *member) {
					if model[keys[i]] != m || next[keys[i]] != nil {
						t.Errorf("%d: not the one that was there, or twice", keys[i])
					}
					m.said++
					next[keys[i]] = m
				},
			)
			for key, m := range model {
				if gone := next[key] == nil; gone != (m.life.Err() != nil) {
					t.Fatalf("%d: gone %t, its life %v", key, gone, m.life.Err())
				}
			}
			model = next
			if all := s.All(); !maps.Equal(all, model) {
				t.Fatalf("members %v, want %v", slices.Collect(maps.Keys(all)), slices.Collect(maps.Keys(model)))
			}
			for _, key := range keys {
				if m, ok := s.Get(key); !ok || m != model[key] {
					t.Fatalf("Get(%d): %v, %t", key, m, ok)
				}
			}
		}
	})
}

// TestRemovedIsSilent: Replace waits for what a member that it removes is telling, and
// what such a member tells later is not heard.
func TestRemovedIsSilent(t *testing.T) {
	var s keyed.Set[string, *keyed.Life]
	defer s.Close()
	entered := make(chan *keyed.Life)
	var heard atomic.Int64
	s.Replace([]string{"a"}, func(_ int, l *keyed.Life) *keyed.Life {
		l.Go(func() {
			l.Tell(func() {
				entered <- l
				<-l.Done()                        // Replace has removed it
				time.Sleep(20 * time.Millisecond) // a Replace that does not wait returns meanwhile
				heard.Add(1)
			})
		})
		return l
	}, nil)
	l := <-entered
	s.Replace(nil, nil, nil)
	if heard.Load() != 1 {
		t.Error("Replace has not waited for what a member that it removes was telling")
	}
	if l.Tell(func() { heard.Add(1) }); heard.Load() != 1 {
		t.Error("a removed member was heard")
	}
}

// TestStuckMember: one whose goroutine does not end holds up Close, and nothing else.
func TestStuckMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s keyed.Set[string, int]
		release := make(chan struct{})
		stuck := func(_ int, l *keyed.Life) int {
			l.Go(func() { <-release })
			return 0
		}
		nothing := func(int, int) {}
		s.Replace([]string{"a"}, stuck, nothing)
		s.Replace(nil, stuck, nothing)
		s.Replace([]string{"a", "b"}, stuck, nothing)
		var closing sync.WaitGroup
		closed := false
		closing.Go(func() { s.Close(); closed = true })
		synctest.Wait()
		if closed {
			t.Error("Close has not waited")
		}
		if n := len(s.All()); n != 0 {
			t.Errorf("%d members while it closes", n)
		}
		close(release)
		closing.Wait()
		s.Replace([]string{"c"}, stuck, nothing)
		if _, ok := s.Get("c"); ok {
			t.Error("Replace works after Close")
		}
		s.Close()
	})
}
