package health

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// deaf is a probe that ends when it likes, whatever its context says.
type deaf chan struct{}

func (d deaf) Probe(context.Context) error {
	<-d
	return nil
}

// A probe that does not heed its deadline shows, and so does a verdict that is not
// taken.
func TestOverdue(t *testing.T) {
	spec := Spec{Type: "tcp", Interval: time.Second, FastInterval: time.Second, DownInterval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
	synctest.Test(t, func(t *testing.T) {
		probe, verdict := make(deaf), make(chan struct{})
		m := NewMonitor(func(string, bool, Status) { <-verdict }, nil)
		m.prober = func(Target) Prober { return probe }
		spec.InitialDown = true
		m.Set([]Target{{Key: "web|a", Network: "tcp", Address: "127.0.0.1:1", Spec: spec}})
		time.Sleep(5 * time.Second)
		if key := m.Overdue(time.Minute); key != "" {
			t.Errorf("too early: %q", key)
		}
		time.Sleep(time.Minute)
		if key := m.Overdue(time.Minute); key != "web|a" {
			t.Errorf("a probe that does not end: %q", key)
		}
		close(probe)
		synctest.Wait()
		if key := m.Overdue(time.Minute); key != "web|a" {
			t.Errorf("a verdict that is not taken: %q", key)
		}
		close(verdict)
		synctest.Wait()
		if key := m.Overdue(0); key != "" {
			t.Errorf("afterwards: %q", key)
		}
		m.Close()
	})
}
