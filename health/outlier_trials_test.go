package health

import (
	"testing"
	"testing/synctest"
	"time"
)

// The trials of a half-open member: exactly so many, whatever comes of them.
func TestOutlierTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flags
		spec := passive
		spec.HalfOpen = 2
		o := NewOutlier(spec, f.set)
		defer o.Close()
		o.Update(spec, []string{"a", "b"})
		eject := func(length time.Duration) {
			t.Helper()
			for range 3 {
				o.Answered("a", false)
			}
			synctest.Wait()
			if !f.ejected("a") {
				t.Fatal("not ejected")
			}
			time.Sleep(length)
			synctest.Wait()
			if f.state("a") != HalfOpen {
				t.Fatalf("%v", f.state("a"))
			}
			for i := range 3 {
				if f.admit("a") != (i < 2) {
					t.Fatal("not just two trials")
				}
			}
		}
		eject(10 * time.Second)
		// Neither comes to anything: the client has gone, or this host has failed.
		time.Sleep(trialPatience)
		synctest.Wait()
		for i := range 3 {
			if f.admit("a") != (i < 2) {
				t.Error("not just two trials more")
			}
		}
		o.Connected("a", true)
		synctest.Wait()
		if f.state("a") != HalfOpen {
			t.Error("a connect alone closes it")
		}
		o.Answered("a", true)
		synctest.Wait()
		if f.state("a") != Closed {
			t.Error("an answer does not close it")
		}

		eject(20 * time.Second)
		o.Connected("a", true)
		time.Sleep(trialPatience - 1)
		synctest.Wait()
		if f.state("a") != HalfOpen {
			t.Error("closed too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if f.state("a") != Closed {
			t.Error("an established connection that nothing speaks against does not close it")
		}

		eject(40 * time.Second)
		o.Connected("a", true)
		o.Answered("a", false)
		o.Answered("a", true) // of the other trial, too late
		synctest.Wait()
		if st, _ := o.Status("a"); st.State != Open || time.Until(st.Until) != 80*time.Second {
			t.Errorf("%+v", st)
		}
	})
}
