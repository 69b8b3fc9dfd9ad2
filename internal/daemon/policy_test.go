package daemon

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/metrics"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// Whom to ask about stalled connections: those who have been sent something of
// late and have not said a word since the last look.
func TestSuspicion(t *testing.T) {
	v, b, now := vigil{}, &balance.Backend{}, time.Now()
	look := func(when string, want bool) {
		t.Helper()
		now = now.Add(watchPace)
		if got := v.suspicious(b, now); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	look("seen first", false)
	look("silent from the beginning", true)
	b.Stats.BytesOut.Add(1)
	look("speaks", false)
	b.Stats.BytesIn.Add(1)
	look("sent something, silent", true)
	v[b].stalled = true
	b.Stats.BytesOut.Add(1)
	look("speaks again", false)
	if v[b].stalled {
		t.Error("an episode that is over goes on")
	}
	now = now.Add(suspicionLasts)
	look("nothing sent for long", false)
	b.Stats.BytesIn.Add(1)
	look("sent something again", true)
}

// Every step of a circuit reaches the pool, the log and the metrics.
func TestCircuitReachesPool(t *testing.T) {
	file := parse(t, `
admin: {socket: `+t.TempDir()+`/admin.sock, http: "", state: ""}
defaults: {pools: {panic: 50}}
services:
  web: {listen: ["`+reserve(t)+`"], pool: web}
pools:
  web: {backends: ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"], check: {type: none}, passive: {failures: 0}}
`)
	var log bytes.Buffer
	d, err := start(Options{File: file, Stdout: io.Discard, Stderr: &log})
	if err != nil {
		t.Fatal(err)
	}
	p := d.generation.Load().pools[0].balance
	a := p.Backends()[0]
	key := d.generation.Load().members[a].key
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
		d.circuit(step.change)
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
	got := d.journal.of(a)
	for kind, n := range counts {
		if got[kind] != n {
			t.Errorf("%v: %d changes, want %d", kind, got[kind], n)
		}
	}
	d.circuit(health.Change{Key: "web|nobody", State: health.Open})

	for _, b := range p.Backends()[:2] {
		d.judge(d.generation.Load().members[b].key, balance.Down)
	}
	if !p.Panicking() {
		t.Error("no panic")
	}
	d.judge(key, 0)
	d.connected(a, l4.ConnectRefused) // passive checks are off
	d.answered(a, false)
	d.close()
	for _, want := range []string{
		`msg="backend is ejected" pool=web backend=127.0.0.1:1 address=127.0.0.1:1 by=passive reason=failures detail=because`,
		`msg="backend is half-open"`, "reason=trial_failed", "reason=trial_passed",
		"too few backends are healthy", "enough backends are healthy again",
	} {
		if n := strings.Count(log.String(), want); n == 0 {
			t.Errorf("no %s in the log:\n%s", want, &log)
		}
	}
}
