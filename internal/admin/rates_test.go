package admin

import (
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	var d fake
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	s := sampler{d: &d}
	look := func(after time.Duration, total uint64) Status {
		d.status = Status{
			Now: start.Add(after),
			Services: []Service{{
				Name: "s", Total: total, BytesIn: total * 10, BytesOut: total * 1000,
				UDP: &ServiceUDP{DatagramsIn: total * 2, DatagramsOut: total * 3},
			}},
			Pools: []Pool{{Name: "p", Backends: []Backend{{Name: "b", Total: total, BytesIn: total * 10, BytesOut: total * 1000}}}},
		}
		return s.status()
	}
	for _, step := range []struct {
		after time.Duration
		total uint64
		over  float64 // 0 = none
		rate  float64
	}{
		{0, 100, 0, 0},                            // nothing to compare with
		{500 * time.Millisecond, 150, 0, 0},       // too soon
		{2 * time.Second, 200, 2, 50},             // since the first
		{2500 * time.Millisecond, 300, 2.5, 80},   // too soon after the last: still since the first
		{4 * time.Second, 400, 2, 100},            // since the one at 2 s
		{5 * time.Second, 100, 1, 100},            // fell: began anew
		{time.Hour, 1000, 0, 0},                   // an average over an hour says nothing
		{time.Hour + 10*time.Second, 1050, 10, 5}, // but it is a start
		{time.Hour + 10*time.Second, 1050, 10, 5}, // the same moment
		{time.Hour + 70*time.Second, 1050, 60, 0}, // the longest
		{time.Hour + 131*time.Second, 1050, 0, 0}, // longer
	} {
		st := look(step.after, step.total)
		if st.RatesOver != step.over {
			t.Errorf("at %v: over %v, want %v", step.after, st.RatesOver, step.over)
		}
		for _, r := range []*Rates{st.Services[0].Rates, st.Pools[0].Backends[0].Rates} {
			switch {
			case step.over == 0 && r != nil:
				t.Errorf("at %v: %v", step.after, *r)
			case step.over > 0 && (r == nil || *r != Rates{step.rate, step.rate * 10, step.rate * 1000}):
				t.Errorf("at %v: %v, want %v", step.after, r, step.rate)
			}
		}
		switch r := st.Services[0].UDP.Rates; {
		case step.over == 0 && r != nil:
			t.Errorf("at %v: datagrams %v", step.after, *r)
		case step.over > 0 && (r == nil || *r != DatagramRates{step.rate * 2, step.rate * 3}):
			t.Errorf("at %v: datagrams %v, want %v", step.after, r, step.rate)
		}
	}
}

// What was not there before has no rates; what is the same but for its address
// is another backend.
func TestRatesOfNewcomers(t *testing.T) {
	before := Status{
		Services: []Service{{Name: "a"}},
		Pools:    []Pool{{Name: "p", Backends: []Backend{{Name: "x", Address: "1"}}}},
	}
	now := Status{
		Services: []Service{{Name: "a"}, {Name: "b"}},
		Pools: []Pool{
			{Name: "p", Backends: []Backend{{Name: "x", Address: "1"}, {Name: "x", Address: "2"}}},
			{Name: "q", Backends: []Backend{{Name: "x", Address: "1"}}},
		},
	}
	now.addRates(&before, time.Second)
	if now.Services[0].Rates == nil || now.Pools[0].Backends[0].Rates == nil {
		t.Error("no rates of what was there")
	}
	if now.Services[1].Rates != nil || now.Pools[0].Backends[1].Rates != nil || now.Pools[1].Backends[0].Rates != nil {
		t.Error("rates of what was not there")
	}
}
