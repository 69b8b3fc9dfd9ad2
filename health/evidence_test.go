package health

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// still is an Outlier without its goroutine: act is called by hand.
func still(spec PassiveSpec, keys ...string) (*Outlier, *flags) {
	f := &flags{}
	o := &Outlier{set: f.set, wake: make(chan struct{}, 1)}
	o.pool.failing = &o.failing
	o.Update(spec, keys)
	return o, f
}

// stranger is the n-th of clients that have nothing to do with each other.
func stranger(n int) netip.Addr {
	if n%2 == 0 {
		return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, byte(n), 15: 1})
}

// The rule of evidence, case O-46, against a model of it: sure failures eject by their
// number in a row, doubtful ones by their number and that of their sources, with no
// answer to anybody between.
func TestEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := PassiveSpec{
			Failures: rapid.IntRange(1, 6).Draw(t, "failures"), Base: 10 * time.Second, Max: time.Minute, MaxPercent: 50,
			Checked: rapid.Bool().Draw(t, "checked"),
		}
		o, f := still(spec, "a", "b")
		sure, doubts, after := 0, 0, false // after: some of the sure ones came after the connect
		sources := map[int]bool{}
		for i := range rapid.IntRange(1, 60).Draw(t, "reports") {
			switch what := rapid.SampledFrom([]string{"connected", "refused", "answered", "failed", "doubted", "doubted", "doubted", "doubted"}).Draw(t, "what"); what {
			case "connected":
				if o.Connected("a", true); !after {
					sure = 0
				}
			case "refused":
				o.Connected("a", false)
				sure++
			case "answered":
				o.Answered("a", true)
				sure, doubts, after = 0, 0, false
				clear(sources)
			case "failed":
				o.Answered("a", false)
				sure, after = sure+1, true
			case "doubted":
				n := rapid.IntRange(1, 4).Draw(t, "client")
				addr := stranger(n)
				if addr.Is6() { // any address of its network
					b := addr.As16()
					b[9], b[15] = byte(i), byte(rapid.IntRange(0, 255).Draw(t, "host"))
					addr = netip.AddrFrom16(b)
				}
				o.Doubted("a", addr)
				if !spec.Checked {
					sure, after = sure+1, true
				} else {
					doubts++
					sources[n] = true
				}
			}
			select {
			case <-o.wake:
				o.act()
			default: // not even worth a look
			}
			want := sure >= spec.Failures || doubts >= spec.Failures && len(sources) >= several
			if f.ejected("a") != want {
				t.Fatalf("after %d sure and %d doubtful failures of %d sources, %d needed: ejected is %t", sure, doubts, len(sources), spec.Failures, !want)
			}
			if want {
				return
			}
		}
	})
}

// The trials of a backend, when failures are doubtful: one stranger decides nothing,
// several do, and none of it makes the next ejection longer.
func TestDoubtfulTrials(t *testing.T) {
	spec := PassiveSpec{Failures: 5, Base: 10 * time.Second, Max: time.Minute, MaxPercent: 50, Checked: true}
	o, f := still(spec, "a", "b")
	now := epoch
	step := func() {
		t.Helper()
		changes, _ := o.pool.step(now)
		for _, c := range changes {
			f.set(c)
		}
	}
	expect := func(what string, want ...Change) {
		t.Helper()
		if diff := cmp.Diff(want, f.take()); diff != "" {
			t.Fatalf("%s: -want +got:\n%s", what, diff)
		}
	}
	for i := range 5 {
		o.Doubted("a", stranger(i))
	}
	step()
	expect("doubted by five", Change{"a", Open, 0, CauseFailures, "5 connections of several clients failed and none was answered, ejected for 10s"})
	renewed := Change{"a", HalfOpen, 1, CauseRenewed, "its trial failed, as its client may have brought about: another one may be made"}
	for round := range 4 { // never longer
		now = now.Add(10 * time.Second)
		step()
		expect(fmt.Sprint("time over, round ", round), Change{"a", HalfOpen, 1, CauseTimeOver, "ejection time is over, on trial"})
		for range 20 {
			o.Connected("a", true)
			step()
			o.Doubted("a", stranger(1))
			step()
			expect("the same stranger's trial", renewed)
		}
		o.Doubted("a", stranger(2))
		step()
		expect("another one's", renewed)
		o.Doubted("a", stranger(3))
		step()
		expect("a third one's", Change{"a", Open, 0, CauseTrialFailed, "trials of several clients failed, ejected again for 10s"})
	}
	now = now.Add(10 * time.Second)
	step()
	f.take()
	o.Doubted("a", stranger(1))
	step()
	expect("a stranger's trial", renewed)
	o.Connected("a", true)
	o.Answered("a", true)
	step()
	expect("a client's", Change{"a", Closed, 0, CauseTrialPassed, "its trial succeeded"})
	if n := o.failing.Load(); n != 0 {
		t.Errorf("%d members are counted as failing", n)
	}
}
