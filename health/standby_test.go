package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	errRole      = failf(ROLE, "the server is a replica, want a primary")
	standbyCheck = Spec{
		Type: "tcp", Interval: 2 * time.Second, FastInterval: 500 * time.Millisecond, DownInterval: time.Minute, Timeout: time.Second,
		Rise: 3, Fall: 3,
	}
)

// A server of the other role is on standby and asked every interval, not every
// down_interval: a change of its role is seen within two, in both directions.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a := m.backends["a"]
		a.set(errRole, 0)
		m.Set([]Target{on("a", standbyCheck)})
		time.Sleep(10 * time.Second)
		want := func(up, standby bool) {
			t.Helper()
			synctest.Wait()
			if st, _ := m.Status("pool|a"); st.Up != up || st.Standby != standby || !st.Verdict || st.FailuresBy[ROLE] != 0 {
				t.Errorf("%+v, want up %v, standby %v", st, up, standby)
			}
		}
		want(false, true)
		a.take()
		time.Sleep(100 * time.Second)
		starts := a.take()
		if len(starts) < 40 {
			t.Fatalf("%d probes in 100 s", len(starts))
		}
		wantGaps(t, starts[:40], repeat(2*time.Second, 39)...)

		a.set(nil, 0)
		time.Sleep(2 * standbyCheck.Interval)
		want(true, false)
		a.set(errRole, 0)
		time.Sleep(2 * standbyCheck.Interval)
		want(false, true)
		if diff := cmp.Diff([]change{{"pool|a", false}, {"pool|a", true}, {"pool|a", false}}, m.take()); diff != "" {
			t.Error(diff)
		}
	})
}

// A standby that dies is down, by the count of failures, and on standby again by the
// count of answers. Both are told, though it was never up.
func TestStandbyThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMonitor("a")
		defer m.Close()
		a := m.backends["a"]
		a.set(errRole, 0)
		m.Set([]Target{on("a", standbyCheck)})
		time.Sleep(10 * time.Second)
		a.set(errRefused, 0)
		time.Sleep(10 * time.Second)
		if st, _ := m.Status("pool|a"); st.Up || st.Standby || st.Reason != L4CON {
			t.Errorf("refuses: %+v", st)
		}
		a.set(errRole, 0)
		time.Sleep(2 * time.Minute)
		if st, _ := m.Status("pool|a"); st.Up || !st.Standby || st.Reason != ROLE {
			t.Errorf("back: %+v", st)
		}
		if got := m.take(); len(got) != 3 {
			t.Errorf("%d changes, want standby, down, standby: %v", len(got), got)
		}
	})
}

func repeat(d time.Duration, n int) (list []time.Duration) {
	for range n {
		list = append(list, d)
	}
	return list
}

// watchStandby has a monitor see a real server on standby. What it returns waits for
// the server to be up and checks how many probes that took.
func watchStandby(t *testing.T, s Spec, address string) (promoted func()) {
	t.Helper()
	s.Interval, s.FastInterval, s.DownInterval, s.Timeout, s.Rise, s.Fall = 200*time.Millisecond, 0, time.Hour, longTimeout, 3, 3
	m := NewMonitor(func(string, bool, Status) {}, nil)
	t.Cleanup(m.Close)
	m.Set([]Target{{Key: "a", Network: "tcp", Address: address, Spec: s}})
	eventually(t, func() bool { st, _ := m.Status("a"); return st.Standby })
	return func() {
		t.Helper()
		// As an operator would see it: had one answer of the new role not been enough, or
		// down_interval been the pace, it would stay on standby.
		direct := s.Prober("tcp", address)
		probeUntil(t, direct, isUp)
		before, _ := m.Status("a")
		eventually(t, func() bool { st, _ := m.Status("a"); return st.Up })
		after, _ := m.Status("a")
		if n := after.Probes - before.Probes; n > 2 {
			t.Errorf("%d probes until the promotion was seen", n)
		}
	}
}
