package control

import (
	"strings"
	"testing"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/metrics"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// Every step of a circuit reaches the pool, the log and the metrics.
func TestCircuitReachesPool(t *testing.T) {
	c, _, log := controlled(t, "", `
defaults: {pools: {panic: 50}}
pools:
  web: {backends: ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"], check: {type: none}, passive: {failures: 0}}
`)
	p := c.Set().Pools()[0].Live
	a := p.Backends()[0]
	key := c.Set().Member(a).key
	counts := map[metrics.StateChange]uint64{}
	for _, step := range []struct {
		change health.Change
		state  string
	}{
		{health.Change{State: health.Open, Cause: health.CauseFailures, Why: "because"}, "ejected"},
		{health.Change{State: health.HalfOpen, Trials: 2, Cause: health.CauseTimeOver}, "half-open"},
		{health.Change{State: health.HalfOpen, Trials: 2, Cause: health.CauseRenewed}, "half-open"},
		{health.Change{State: health.Open, Cause: health.CauseTrialFailed}, "ejected"},
		{health.Change{State: health.HalfOpen, Trials: 1, Cause: health.CauseTimeOver}, "half-open"},
		{health.Change{State: health.Closed, Cause: health.CauseTrialPassed}, "up"},
	} {
		step.change.Key = key
		c.circuit(step.change)
		if got := a.State(); got != step.state {
			t.Errorf("after %+v it is %s", step.change, got)
		}
		if s := p.Snapshot().Backends[0]; step.state == "half-open" && s.Trials != step.change.Trials || step.state != "half-open" && s.Trials != -1 {
			t.Errorf("after %+v: %+v", step.change, s)
		}
		if step.change.Cause != health.CauseRenewed {
			counts[metrics.StateChange{Author: "passive", Reason: string(step.change.Cause)}]++
		}
	}
	got := c.StateChanges(a)
	for kind, n := range counts {
		if got[kind] != n {
			t.Errorf("%v: %d changes, want %d", kind, got[kind], n)
		}
	}
	c.circuit(health.Change{Key: "web|nobody", State: health.Open})

	for _, b := range p.Backends()[:2] {
		c.judge(c.Set().Member(b).key, balance.Down)
	}
	if !p.Panicking() {
		t.Error("no panic")
	}
	c.judge(key, 0)
	c.Connected(a, l4.ConnectRefused) // passive checks are off
	c.Answered(a, false)
	for _, want := range []string{
		`msg="backend is ejected" pool=web backend=127.0.0.1:1 address=127.0.0.1:1 by=passive reason=failures detail=because`,
		`msg="backend is half-open"`, "reason=trial_failed", "reason=trial_passed",
		"too few backends are healthy", "enough backends are healthy again",
	} {
		if n := strings.Count(log.String(), want); n == 0 {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
}

// The report of every single connect is on the way of every connection.
func TestConnectedAllocatesNothing(t *testing.T) {
	c, _, _ := controlled(t, "", "pools: {web: {backends: [\"127.0.0.1:1\"], check: {type: none}}}")
	b := c.Set().Pools()[0].Live.Backends()[0]
	for _, r := range []l4.ConnectReason{l4.ConnectOK, l4.ConnectRefused, l4.ConnectNoDescriptors} {
		if n := testing.AllocsPerRun(100, func() { c.Connected(b, r) }); n != 0 {
			t.Errorf("%s: %v allocations", r, n)
		}
	}
}
