package balance

import (
	"math"
	"testing"
	"time"
)

func TestABDistribution(t *testing.T) {
	for _, split := range []float64{0, 0.1, 0.5, 0.75, 1} {
		spec := poolSpec("", 100, 100, 100)
		spec.AB = &AB{A: "first", B: "round-robin", Split: split}
		p := New(spec, seeded(t))
		const n = 20000
		counts := map[string]int{}
		for i := range n {
			lease := acquire(t, p, flow(i))
			counts[lease.Strategy()]++
			if lease.Strategy() == "a" && lease.Backend().Name() != "b0" {
				t.Fatalf("strategy a is first, and chose %s", lease.Backend().Name())
			}
			retry, err := p.Acquire(flow(i), func(b *Backend) bool { return b == lease.Backend() })
			if err != nil || retry.Strategy() != lease.Strategy() {
				t.Fatalf("retried with %q after %q", retry.Strategy(), lease.Strategy())
			}
			retry.Release()
			lease.Report(i%10 != 0, time.Duration(i)*time.Microsecond)
			lease.Release()
			lease.Report(true, 0) // only the first counts
		}
		want := split * n
		if got := float64(counts["a"]); math.Abs(got-want) > 5*math.Sqrt(n*split*(1-split)) {
			t.Errorf("split %v: %v", split, counts)
		}
		s := p.Snapshot()
		if len(s.Strategies) != 2 || s.Algorithm != "" {
			t.Fatalf("snapshot %+v", s)
		}
		for _, st := range s.Strategies {
			if int(st.Sessions) != counts[st.Name] || st.Successes+st.Failures != st.Sessions || st.Latency.Count != st.Successes {
				t.Errorf("strategy %s: %d sessions, %d ok, %d failed, %d timed; want %d", st.Name, st.Sessions, st.Successes, st.Failures, st.Latency.Count, counts[st.Name])
			}
		}
		if a := s.Strategies[0]; a.Algorithm != "first" || s.Strategies[1].Algorithm != "round-robin" {
			t.Errorf("algorithms %+v", a.Algorithm)
		}
	}
}

// Every pair keeps the promises of a pool, through reloads, and its counters.
func TestABOfAllAlgorithms(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a string) {
		for _, b := range algorithms() {
			spec := poolSpec("", 100, 100, 100)
			spec.AB = &AB{A: a, B: b, Split: 0.5}
			spec.SlowStart = time.Hour
			p := New(spec, nil)
			for i := range 3 {
				p.SetFlag(spec.Backends[i].id(), Down, true)
				for i := range 20 {
					touch(t, p, flow(i))
				}
				p.SetFlag(spec.Backends[i].id(), Down, false)
			}
			spec.Backends[0].Weight = 3
			p.Update(spec)
			touch(t, p, flow(1))
			if s := p.Snapshot().Strategies; s[0].Sessions+s[1].Sessions != 61 {
				t.Errorf("%s, %s: %d and %d sessions", a, b, s[0].Sessions, s[1].Sessions)
			}
			p.Update(poolSpec(a, 1, 1))
			if lease := acquire(t, p, flow(1)); lease.Strategy() != "" {
				t.Errorf("strategy %q without a comparison", lease.Strategy())
			}
		}
	})
}
