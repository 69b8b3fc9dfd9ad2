// Package keyed keeps a set of members, each with a key and goroutines of its own,
// in step with a list that is set as a whole: what a reload does to the targets of
// checks and to the names of backends.
//
// A member that stays is told; one that goes is silenced, and its goroutines end by
// themselves, because a stuck one must not hold up a reload.
package keyed

import (
	"context"
	"sync"
)

// Set is a set of members of type M. The zero Set is empty and ready.
type Set[K comparable, M any] struct {
	// turns makes Replace and Close take turns; no member's goroutine waits for it.
	turns  sync.Mutex
	closed bool

	running sync.WaitGroup // the goroutines of all members, of removed ones too

	mu      sync.Mutex      // guards the following
	members map[K]member[M] // replaced as a whole, with turns held
}

type member[M any] struct {
	life  *Life
	value M
}

// Life is that of one member, from the Replace that brings it to the one that does
// not have its key, or to Close.
type Life struct {
	context.Context // ends when the member is removed
	end             context.CancelFunc
	running         *sync.WaitGroup
	telling         sync.Mutex // held while a function of Tell runs
}

// Go runs f, which belongs to the member, on a goroutine that Close waits for. It may
// be called while the member is made or told, and by goroutines of the member.
func (l *Life) Go(f func()) { l.running.Go(f) }

// Tell calls f unless the member is removed. When Replace and Close return, no
// function of a removed member runs, and none will.
func (l *Life) Tell(f func()) {
	l.telling.Lock()
	defer l.telling.Unlock()
	if l.Err() == nil {
		f()
	}
}

// silence returns when the member, which is removed, tells of nothing any more.
func (l *Life) silence() {
	l.telling.Lock()
	defer l.telling.Unlock()
}

// Replace makes these the keys of the set, exactly these. For a key that is new it
// calls add with the key's index, for one that stays change; neither may call the set.
// A key that comes twice counts once, the first time. What Tell runs must not call
// Replace or Close, nor wait for a lock that a caller of theirs holds, for they wait
// for it. After Close, Replace does nothing.
func (s *Set[K, M]) Replace(keys []K, add func(i int, l *Life) M, change func(i int, m M)) {
	s.turns.Lock()
	defer s.turns.Unlock()
	if s.closed {
		return
	}
	keep := make(map[K]member[M], len(keys))
	for i, key := range keys {
		if _, twice := keep[key]; twice {
			continue
		}
		m, stays := s.members[key]
		if stays {
			change(i, m.value)
		} else {
			m.life = &Life{running: &s.running}
			m.life.Context, m.life.end = context.WithCancel(context.Background())
			m.value = add(i, m.life)
		}
		keep[key] = m
	}
	s.swap(keep)
}

// swap silences those that are gone. It requires turns.
func (s *Set[K, M]) swap(keep map[K]member[M]) {
	s.mu.Lock()
	old := s.members
	s.members = keep
	s.mu.Unlock()
	for key, m := range old {
		if _, stays := keep[key]; !stays {
			m.life.end()
			defer m.life.silence()
		}
	}
}

// Get returns the member with that key, and whether there is one.
func (s *Set[K, M]) Get(key K) (M, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.members[key]
	return m.value, ok
}

// All returns the members, in no order.
func (s *Set[K, M]) All() map[K]M {
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	all := make(map[K]M, len(members))
	for key, m := range members {
		all[key] = m.value
	}
	return all
}

// Close removes all members and waits for their goroutines.
func (s *Set[K, M]) Close() {
	s.turns.Lock()
	defer s.turns.Unlock()
	s.closed = true
	s.swap(nil)
	s.running.Wait()
}
