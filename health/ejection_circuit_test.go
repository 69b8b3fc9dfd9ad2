package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// vector is one step of a circuit: what happens, and what comes of it.
type vector struct {
	after time.Duration // since the step before
	do    func(a *member)
	want  Change // Why is not compared; the zero value is no change
}

// The whole of a circuit, step by step.
func TestCircuit(t *testing.T) {
	fail := func(a *member) { a.fail(); a.fail(); a.fail() }
	result := func(r int32) func(*member) { return func(a *member) { a.judge(r) } }
	nothing := func(*member) {}
	opened := func(c Cause) Change { return Change{Key: "a", State: Open, Cause: c} }
	onTrial := func(c Cause) Change { return Change{Key: "a", State: HalfOpen, Trials: 2, Cause: c} }
	closed := Change{Key: "a", State: Closed, Cause: CauseTrialPassed}
	spec := passive
	spec.HalfOpen = 2
	const base = 10 * time.Second
	for name, vectors := range map[string][]vector{
		"passes": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{time.Second, result(trialPassed), closed},
			{time.Second, nothing, Change{}},
		},
		"connects, then answers": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{0, result(trialReached), Change{}},
			{trialPatience / 2, result(trialPassed), closed},
		},
		"fails, longer each time": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{time.Second, result(trialFailed), opened(CauseTrialFailed)},
			{2*base - 1, nothing, Change{}},
			{1, nothing, onTrial(CauseTimeOver)},
			{0, result(trialReached), Change{}},
			{0, result(trialFailed), opened(CauseTrialFailed)},
			{4 * base, nothing, onTrial(CauseTimeOver)},
			{0, result(trialPassed), closed},
			{0, fail, opened(CauseFailures)},
			{8 * base, nothing, onTrial(CauseTimeOver)},
		},
		"nobody comes, or the trial is lost": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{trialPatience, nothing, onTrial(CauseRenewed)},
			{trialPatience, nothing, onTrial(CauseRenewed)},
			{0, result(trialPassed), closed},
		},
		"established and silent": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{trialPatience - 1, result(trialReached), Change{}},
			{trialPatience - 1, nothing, Change{}},
			{1, nothing, closed},
		},
		"the first verdict counts": {
			{0, fail, opened(CauseFailures)},
			{base, nothing, onTrial(CauseTimeOver)},
			{0, func(a *member) { a.judge(trialPassed); a.judge(trialFailed) }, closed},
		},
		"failures on trial are no run": {
			{0, fail, opened(CauseFailures)},
			{base, func(a *member) { a.fail() }, onTrial(CauseTimeOver)},
			{0, result(trialPassed), closed},
			{0, func(a *member) { a.fail(); a.fail() }, Change{}},
			{0, func(a *member) { a.fail() }, opened(CauseFailures)},
		},
	} {
		p, now := newPool(spec, "a", "b"), epoch
		for i, v := range vectors {
			now = now.Add(v.after)
			v.do(p.index()["a"])
			changes, next := p.step(now)
			var want []Change
			if v.want != (Change{}) {
				want = append(want, v.want)
			}
			if d := cmp.Diff(want, changes, cmpopts.IgnoreFields(Change{}, "Why"), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s, step %d: %s", name, i, d)
			}
			if out := p.ejections.out > 0; out == next.IsZero() || out && !next.After(now) {
				t.Errorf("%s, step %d: next at %v, now is %v", name, i, next, now)
			}
		}
	}
}
