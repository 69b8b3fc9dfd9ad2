package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// backend stands in for what is probed: it answers as told and notes when.
type backend struct {
	mu       sync.Mutex
	err      error         // of every answer
	delay    time.Duration // of every answer; the probe's context cuts it short
	starts   []time.Time
	inFlight int
	most     int
}

func (b *backend) Probe(ctx context.Context) error {
	b.mu.Lock()
	b.starts = append(b.starts, time.Now())
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	delay := b.delay
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.inFlight--
		b.mu.Unlock()
	}()
	if delay > 0 {
		select {
		case <-ctx.Done():
			return failf(L7TOUT, "%w", ctx.Err())
		case <-time.After(delay):
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *backend) set(err error, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.delay = err, delay
}

// take returns when the probes since the last take began, and forgets them.
func (b *backend) take() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.starts = nil }()
	return b.starts
}

// flying returns how many probes are in flight, and were at most.
func (b *backend) flying() (now, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight, b.most
}

// change is one call of onChange.
type change struct {
	Key string
	Up  bool
}

// testMonitor probes backends by their Address.
type testMonitor struct {
	*Monitor
	backends map[string]*backend
	mu       sync.Mutex
	changes  []change
}

func newTestMonitor(addresses ...string) *testMonitor {
	tm := &testMonitor{backends: map[string]*backend{}}
	for _, a := range addresses {
		tm.backends[a] = &backend{}
	}
	tm.Monitor = NewMonitor(func(key string, up bool, st Status) {
		if st.Up != up {
			panic("the status does not say what onChange says")
		}
		tm.mu.Lock()
		defer tm.mu.Unlock()
		tm.changes = append(tm.changes, change{key, up})
	}, nil)
	tm.prober = func(t Target) Prober { return tm.backends[t.Address] }
	return tm
}

// failed is how many probes have failed.
func failed(st Status) (n uint64) {
	for _, by := range st.FailuresBy {
		n += by
	}
	return n
}

func (tm *testMonitor) take() []change {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	defer func() { tm.changes = nil }()
	return tm.changes
}

var testSpec = Spec{
	Type: "tcp", Interval: 2 * time.Second, FastInterval: 500 * time.Millisecond, DownInterval: 5 * time.Second,
	Timeout: time.Second, Rise: 2, Fall: 3,
}

func on(address string, spec Spec) Target {
	return Target{Key: "pool|" + address, Network: "tcp", Address: address, Spec: spec}
}

var errRefused = &Failure{L4CON, syscall.ECONNREFUSED}

// wantGaps checks the pauses between starts against the intervals wanted, jitter
// allowed for.
func wantGaps(t *testing.T, starts []time.Time, want ...time.Duration) {
	t.Helper()
	if len(starts) != len(want)+1 {
		t.Fatalf("%d probes, want %d", len(starts), len(want)+1)
	}
	for i, w := range want {
		gap := starts[i+1].Sub(starts[i])
		if gap < w*9/10 || gap > w*11/10 {
			t.Errorf("pause %d is %v, want %v ± 10 %%", i, gap, w)
		}
	}
}

func TestMonitorInitialState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a", "b", "c", "d")
		defer m.Close()
		down := testSpec
		down.InitialDown = true
		for _, address := range []string{"b", "d"} {
			m.backends[address].set(errRefused, 0)
		}
		m.Set([]Target{on("a", testSpec), on("b", testSpec), on("c", down), on("d", down)})
		for i, want := range []bool{true, true, false, false} {
			st, _ := m.Status("pool|" + string(rune('a'+i)))
			if st.Up != want || st.Verdict || st.Since.IsZero() || !st.At.IsZero() || st.FailuresBy == nil {
				t.Errorf("%d: %+v", i, st)
			}
		}
		time.Sleep(time.Minute)
		changes := m.take()
		slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.Key, b.Key) })
		// a and d only confirm what they began with.
		if diff := cmp.Diff([]change{{"pool|b", false}, {"pool|c", true}}, changes); diff != "" {
			t.Error(diff)
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			if st, _ := m.Status("pool|" + key); !st.Verdict {
				t.Errorf("%s has no verdict", key)
			}
		}
	})
}

// Case O-34: what goes wrong here moves no verdict, neither way.
func TestMonitorLocalErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a := m.backends["a"]
		m.Set([]Target{on("a", testSpec)})
		time.Sleep(10 * time.Second)
		a.set(fmt.Errorf("%w: %w", ErrLocal, syscall.EMFILE), 0)
		time.Sleep(time.Minute)
		st, _ := m.Status("pool|a")
		if !st.Up || st.Reason != "" || st.Detail != "the probe could not be sent: too many open files" || failed(st) > 0 {
			t.Errorf("%+v", st)
		}
		if ch := m.take(); ch != nil {
			t.Errorf("changes %v", ch)
		}
	})
}

func TestMonitorStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a := m.backends["a"]
		if _, ok := m.Status("pool|a"); ok {
			t.Error("a status before Set")
		}
		m.Set([]Target{on("a", testSpec), on("a", Spec{Type: "none"})}) // the first one counts
		time.Sleep(time.Minute)
		up, _ := m.Status("pool|a")
		a.set(&Failure{L7STS, errors.New(string(make([]byte, 1000)))}, 100*time.Millisecond)
		time.Sleep(time.Minute)
		down, _ := m.Status("pool|a")
		if up.Up == down.Up || !down.Since.After(up.At) || down.Since.After(up.At.Add(10*time.Second)) {
			t.Errorf("up %+v, down %+v", up, down)
		}
		if down.Reason != L7STS || len(down.Detail) > 210 || down.Took != 100*time.Millisecond || time.Since(down.At) > 6*time.Second {
			t.Errorf("%+v", down)
		}
		if down.FailuresBy[L7STS] != down.Probes-up.Probes {
			t.Errorf("%d failures of %d probes", down.FailuresBy[L7STS], down.Probes-up.Probes)
		}
		clear(down.FailuresBy) // the caller's own
		if again, _ := m.Status("pool|a"); len(again.FailuresBy) == 0 {
			t.Error("the map is shared")
		}
		// A plain error is a wrong answer; a target that is rising still says why it is down.
		a.set(errors.New("odd"), 0)
		time.Sleep(6 * time.Second)
		a.set(nil, 0)
		a.take()
		for len(a.take()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if st, _ := m.Status("pool|a"); st.Up || st.Reason != L7RSP || st.Detail != "odd" {
			t.Errorf("rising: %+v", st)
		}
		time.Sleep(10 * time.Second)
		if st, _ := m.Status("pool|a"); !st.Up || st.Reason != "" || st.Detail != "" {
			t.Errorf("up: %+v", st)
		}
	})
}
