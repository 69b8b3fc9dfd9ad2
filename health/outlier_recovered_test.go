package health

import (
	"testing"
	"testing/synctest"
	"time"
)

// A check that passes again ends an ejection, or a trial, at once, but not the memory
// of it; and it ends a run of failures.
func TestOutlierRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		o := NewOutlier(passive, f.set)
		defer o.Close()
		o.Update(passive, []string{"a", "b"})
		fail := func(n int) {
			for range n {
				o.Answered("a", false)
			}
			synctest.Wait()
		}
		recovered := func() {
			t.Helper()
			o.Recovered("a")
			synctest.Wait()
			if f.state("a") != Closed {
				t.Errorf("it is %v", f.state("a"))
			}
			if e, _ := o.Status("a"); e.State != Closed || e.Why != "" {
				t.Errorf("%+v", e)
			}
		}

		fail(3)
		if !f.ejected("a") {
			t.Fatal("not ejected")
		}
		f.take()
		recovered()
		if got := f.take(); len(got) != 1 || got[0].Cause != CauseCheckPassed || got[0].State != Closed {
			t.Errorf("told was %+v", got)
		}

		// The second ejection is twice as long.
		fail(2)
		recovered() // ends the run
		fail(2)
		if f.state("a") != Closed {
			t.Error("failures before the check has passed still count")
		}
		fail(1)
		time.Sleep(2*passive.Base - 1)
		synctest.Wait()
		if !f.ejected("a") {
			t.Error("its repetition is forgotten")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if f.state("a") != HalfOpen {
			t.Fatalf("it is %v", f.state("a"))
		}
		recovered()
		o.Answered("a", false) // of the trial, too late
		fail(1)
		if f.state("a") != Closed {
			t.Error("the trial is not over")
		}

		f.take()
		o.Recovered("b")
		o.Recovered("nobody")
		synctest.Wait()
		if got := f.take(); len(got) != 0 {
			t.Errorf("told was %+v", got)
		}
	})
}
