package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Whatever Sets come in whatever order, while backends fail, hang and recover:
// one probe in flight a target, none of a removed one, changes that alternate,
// and a status that says what the changes said.
func TestMonitorUnderRandomSets(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(t *testing.T) {
			s := &simulation{rnd: rand.New(rand.NewPCG(seed, 0)), flying: map[string]int{}, up: map[string]bool{}}
			if err := s.run(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

type simulation struct {
	mu     sync.Mutex
	rnd    *rand.Rand // of the backends' behaviour too
	flying map[string]int
	up     map[string]bool // what Set and onChange have said; a key in it is a target
	errs   []error
}

func (s *simulation) run() error {
	m := NewMonitor(s.changed, nil)
	m.prober = func(t Target) Prober { return simulated{s, t.Key} }
	for range 40 {
		var targets []Target
		s.mu.Lock()
		for i := range s.rnd.IntN(6) {
			spec := Spec{
				Type:         []string{"tcp", "http", "none"}[s.rnd.IntN(3)],
				Interval:     time.Duration(1+s.rnd.IntN(4000)) * time.Millisecond,
				FastInterval: time.Duration(s.rnd.IntN(1000)) * time.Millisecond,
				Timeout:      time.Duration(1+s.rnd.IntN(2000)) * time.Millisecond,
				Rise:         1 + s.rnd.IntN(3),
				Fall:         1 + s.rnd.IntN(3),
				Port:         s.rnd.IntN(2),
				InitialDown:  s.rnd.IntN(2) == 0,
			}
			targets = append(targets, Target{Key: fmt.Sprint("k", i), Spec: spec})
			if _, ok := s.up[targets[i].Key]; !ok {
				s.up[targets[i].Key] = spec.InitiallyUp()
			}
		}
		pause := time.Duration(max(s.rnd.IntN(4500)-1500, 0)) * time.Millisecond // often none
		s.mu.Unlock()
		m.Set(targets)
		synctest.Wait() // probes of targets that are gone end by themselves
		s.mu.Lock()
		for i := len(targets); i < 6; i++ {
			key := fmt.Sprint("k", i)
			if s.flying[key] != 0 {
				s.failf("%s is gone and has a probe in flight", key)
			}
			delete(s.up, key)
		}
		s.mu.Unlock()
		time.Sleep(pause)
		synctest.Wait()
		s.compare(m, targets)
	}
	m.Close()
	return errors.Join(s.errs...)
}

func (s *simulation) compare(m *Monitor, targets []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range targets {
		st, ok := m.Status(t.Key)
		if !ok || st.Up != s.up[t.Key] {
			s.failf("%s: status %v %+v, but the changes say up = %v", t.Key, ok, st, s.up[t.Key])
		}
		if t.Spec.Type == "none" && (!st.Up || s.flying[t.Key] != 0) {
			s.failf("%s has no check, but up = %v and %d probes in flight", t.Key, st.Up, s.flying[t.Key])
		}
	}
}

func (s *simulation) changed(key string, up bool, _ Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.up[key]; !ok || was == up {
		s.failf("%s: change to %v from %v, a target: %v", key, up, was, ok)
	}
	s.up[key] = up
}

func (s *simulation) failf(format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

type simulated struct {
	s   *simulation
	key string
}

func (b simulated) Probe(ctx context.Context) error {
	b.s.mu.Lock()
	b.s.flying[b.key]++
	if b.s.flying[b.key] > 1 {
		b.s.failf("%s: %d probes at once", b.key, b.s.flying[b.key])
	}
	takes := time.Duration(b.s.rnd.IntN(3)) * time.Duration(b.s.rnd.IntN(1500)) * time.Millisecond
	err := []error{nil, nil, errRefused, fmt.Errorf("%w: test", ErrLocal), errors.New("odd")}[b.s.rnd.IntN(5)]
	b.s.mu.Unlock()
	select {
	case <-ctx.Done():
		err = failf(L7TOUT, "%w", ctx.Err())
	case <-time.After(takes):
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.flying[b.key]--
	return err
}
