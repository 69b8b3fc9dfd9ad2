package health

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Random failures, trials, reloads and time, against the promises: never over the
// cap, never the lone backend that can serve, only steps that a circuit has, trials exactly when
// half-open, everybody back in the end.
func TestEjectionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := epoch
		p := newPool(PassiveSpec{})
		state := map[string]Circuit{}
		tell := func(events []Change) {
			for _, e := range events {
				from := state[e.Key]
				legal := map[Circuit][]Circuit{Closed: {Open}, Open: {HalfOpen, Closed}, HalfOpen: {Open, Closed}}[from]
				switch renewed := from == HalfOpen && e.State == HalfOpen && e.Cause == CauseRenewed; {
				case !slices.Contains(legal, e.State) && !renewed:
					t.Fatalf("%s: from %v to %v", e.Key, from, e.State)
				case from == Open && e.State == Closed && e.Cause != CauseForgotten && e.Cause != CauseNotAllowed:
					t.Fatalf("%s: closed without a trial: %v", e.Key, e)
				case (e.State == HalfOpen) != (e.Trials > 0) || e.State == HalfOpen && e.Trials != max(p.spec.HalfOpen, 1):
					t.Fatalf("%s: %d trials when %v", e.Key, e.Trials, e.State)
				case e.Why == "" || e.Cause == "":
					t.Fatalf("%v", e)
				}
				if state[e.Key] = e.State; e.State == Closed {
					delete(state, e.Key)
				}
			}
			failing, serving, out := 0, 0, 0
			for _, m := range p.members {
				if !m.idle || p.spec.Failures == 0 {
					if serving++; m.state != Closed {
						out++
					}
				}
				if m.state != state[m.key] {
					t.Fatalf("%s is %v, told: %v", m.key, m.state, state[m.key])
				}
				if m.onTrial() != (m.state == HalfOpen) {
					t.Fatalf("%s is %v, on trial: %v", m.key, m.state, m.onTrial())
				}
				if m.state == Open && (m.until.Before(now) || m.until.Sub(now) > max(p.spec.Max, p.spec.Base) && m.lasted <= p.spec.Max) {
					t.Fatalf("%s is ejected until %v, now is %v", m.key, m.until, now)
				}
				for _, r := range []*series{&m.run, &m.doubts.run} {
					if r.length() > 0 {
						failing++
					}
				}
				if m.onTrial() {
					failing++
				}
			}
			if out != p.ejections.out || out > 0 && (serving < 2 || out*100 > p.spec.MaxPercent*serving) {
				t.Fatalf("%d of %d out (counted: %d) with a limit of %d %%", out, serving, p.ejections.out, p.spec.MaxPercent)
			}
			if n := p.failing.Load(); n != int64(failing) {
				t.Fatalf("%d counted as failing, %d are", n, failing)
			}
		}
		step := func() (next time.Time) {
			events, next := p.step(now)
			tell(events)
			return next
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch op := rapid.SampledFrom([]string{"fail", "fail", "doubt", "doubt", "succeed", "trial", "trial", "wait", "reload", "idle"}).Draw(t, "op"); op {
			case "reload":
				var keys []string
				for i := range rapid.IntRange(0, 6).Draw(t, "members") {
					keys = append(keys, fmt.Sprint("k", i))
				}
				base := rapid.IntRange(1, 20).Draw(t, "base")
				tell(p.update(now, PassiveSpec{
					Failures:   rapid.IntRange(0, 4).Draw(t, "failures"),
					Base:       time.Duration(base) * time.Second,
					Max:        time.Duration(rapid.IntRange(base, 100).Draw(t, "max")) * time.Second,
					MaxPercent: rapid.IntRange(0, 100).Draw(t, "percent"),
					HalfOpen:   rapid.IntRange(0, 3).Draw(t, "half_open"),
				}, keys))
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms")) * time.Millisecond)
				step()
			default:
				if len(p.members) == 0 {
					continue
				}
				m := p.members[rapid.IntRange(0, len(p.members)-1).Draw(t, "member")]
				switch {
				case op == "trial":
					m.judge(rapid.SampledFrom([]int32{trialReached, trialDoubted, trialPassed, trialFailed}).Draw(t, "result"))
				case op == "idle":
					tell(p.setIdle(m, now, rapid.Bool().Draw(t, "idle")))
				case op == "succeed":
					m.end(0)
				case op == "doubt" && p.spec.Failures > 0:
					for range rapid.IntRange(1, 4).Draw(t, "times") {
						m.doubt(netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, 5).Draw(t, "source"))}))
					}
				case p.spec.Failures > 0 && !m.onTrial():
					p.fail(m.key, rapid.IntRange(1, 4).Draw(t, "times"))
				}
				step()
			}
		}
		for _, m := range p.members {
			m.end(0)
		}
		for i := 0; ; i++ { // follow the timer, as the shell does, and let trials pass
			for _, m := range p.members {
				m.judge(trialPassed)
			}
			next := step()
			if next.IsZero() {
				break
			}
			if i > 100 {
				t.Fatalf("never returned: %v", state)
			}
			now = next
		}
	})
}
