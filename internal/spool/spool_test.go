package spool_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/internal/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func line(b []byte, n *int) []byte { return fmt.Appendln(b, *n) }

// told collects what a spool tells.
type told struct {
	mu   sync.Mutex
	what []string
}

func (t *told) tell(lost uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.what = append(t.what, fmt.Sprint(lost, " ", err))
}

func (t *told) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.what, "; ")
}

// reader is a target that takes something when it is read.
type reader struct {
	turn chan struct{} // one element: one write is taken
	mu   sync.Mutex
	got  strings.Builder
	fail error
}

func (r *reader) Write(p []byte) (int, error) {
	<-r.turn
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return 0, r.fail
	}
	return r.got.Write(p)
}

// While the target is stuck nothing waits, what finds no room is counted, and the
// target's state can be seen; once it takes lines again what is missing is told.
func TestStuckTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tells told
		r := &reader{turn: make(chan struct{})}
		s := spool.New(r, line, spool.Options{Queue: 4, Tell: tells.tell})
		put := func(n int) { s.Put(&n) }
		put(0)
		synctest.Wait() // the writer has it
		for n := range 10 {
			put(n + 1)
		}
		time.Sleep(time.Minute)
		if s.Lost() != 6 || s.Stuck() != time.Minute || tells.String() != "" {
			t.Errorf("lost %d, stuck for %s, told %q", s.Lost(), s.Stuck(), tells.String())
		}
		close(r.turn)
		synctest.Wait()
		if s.Stuck() != 0 || tells.String() != "6 <nil>" {
			t.Errorf("stuck for %s, told %q", s.Stuck(), tells.String())
		}
		put(11)
		if err := s.Close(time.Second); err != nil {
			t.Error(err)
		}
		if got := strings.Fields(r.got.String()); strings.Join(got, " ") != "0 1 2 3 4 11" {
			t.Errorf("got %v", got)
		}
		if put(12); s.Lost() != 7 {
			t.Errorf("lost %d", s.Lost())
		}
	})
}

// A target that fails is told of once a minute, whatever is lost.
func TestFailingTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tells told
		r := &reader{turn: make(chan struct{}), fail: syscall.EPIPE}
		close(r.turn)
		s := spool.New(r, line, spool.Options{Queue: 4, Tell: tells.tell})
		for n := range 90 {
			s.Put(&n)
			time.Sleep(time.Second)
		}
		if want := "1 broken pipe; 60 broken pipe"; tells.String() != want || s.Lost() != 90 {
			t.Errorf("told %q, lost %d", tells.String(), s.Lost())
		}
		if err := s.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
}

// The end does not wait for a target that takes nothing, and waits for one that is
// slow.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{turn: make(chan struct{})}
		s := spool.New(r, line, spool.Options{Queue: 4, Tell: new(told).tell})
		for n := range 3 {
			s.Put(&n)
		}
		began := time.Now()
		if err := s.Close(time.Second); !errors.Is(err, spool.ErrLinesLost) || time.Since(began) > 2*time.Second || s.Lost() == 0 {
			t.Errorf("%v after %s, lost %d", err, time.Since(began), s.Lost())
		}
		close(r.turn)
	})
	synctest.Test(t, func(t *testing.T) {
		r := &reader{turn: make(chan struct{})}
		s := spool.New(r, line, spool.Options{Queue: 4, Tell: new(told).tell})
		n := 1
		s.Put(&n)
		go func() {
			time.Sleep(900 * time.Millisecond)
			close(r.turn)
		}()
		if err := s.Close(time.Second); err != nil || r.got.String() != "1\n" {
			t.Errorf("%v, %q", err, r.got.String())
		}
	})
}

// Another target takes over at once from one that is stuck and knows no deadline; the
// same one under another format waits for its own turn.
func TestSwitchAwayFromStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, good := &reader{turn: make(chan struct{})}, &reader{turn: make(chan struct{})}
		close(good.turn)
		s := spool.New(stuck, line, spool.Options{Queue: 4, Tell: new(told).tell})
		put := func(n int) { s.Put(&n) }
		put(1)
		synctest.Wait()
		s.Switch(stuck, line)
		time.Sleep(time.Second)
		if s.Stuck() != time.Second {
			t.Errorf("stuck for %s", s.Stuck())
		}
		s.Switch(good, line)
		put(2)
		synctest.Wait()
		if good.got.String() != "2\n" || s.Stuck() != 0 {
			t.Errorf("got %q, stuck for %s", good.got.String(), s.Stuck())
		}
		close(stuck.turn)
		s.Switch(nil, nil)
		put(3)
		synctest.Wait()
		if err := s.Close(time.Second); err != nil || s.Lost() != 0 || stuck.got.String() != "1\n" {
			t.Errorf("%v, lost %d, got %q", err, s.Lost(), stuck.got.String())
		}
	})
}

// A file system that does not answer holds up no reload, and no second attempt is
// made before the first has ended.
func TestReopenOfStuckFile(t *testing.T) {
	path := t.TempDir() + "/log"
	f, err := spool.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		if err := f.Reopen(0); err != nil && !strings.Contains(err.Error(), "has not opened within 0s") {
			t.Error(err)
		}
	}
	if err := f.Reopen(time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(f, "x"); err != nil {
		t.Error(err)
	}
}
