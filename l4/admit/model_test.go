package admit

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/poise-lb/poise/l4"
)

// bucket is the naive form of a rate: a level that runs out with time (the leaky
// bucket of ITU-T I.371, figure A.1, where Poise uses the other one).
type bucket struct{ level, last int64 }

func (b bucket) after(perSecond float64, now int64) (bucket, bool) {
	if perSecond == 0 {
		return b, true
	}
	interval := int64(math.Round(1e9 / perSecond))
	size := interval * int64(max(math.Floor(perSecond), 1))
	b.level, b.last = min(max(b.level-(now-b.last), 0), size), now
	if b.level+interval > size {
		return b, false
	}
	b.level += interval
	return b, true
}

// model says what a Policy should, by looking through everything.
type model struct {
	spec   Spec
	counts bool
	rate   bucket
	used   map[netip.Prefix]bucket
	open   map[netip.Prefix]int
}

func (m *model) reload(spec Spec) *model {
	n := &model{spec, m.counts || spec.PerSource > 0, m.rate, m.used, m.open}
	if spec.Mask4 != m.spec.Mask4 || spec.Mask6 != m.spec.Mask6 || (!n.counts && spec.SourceRate == 0) {
		n.used, n.open = map[netip.Prefix]bucket{}, map[netip.Prefix]int{}
	}
	return n
}

func (m *model) source(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := m.spec.Mask4
	if a.Is6() {
		bits = m.spec.Mask6
	}
	if bits == 0 {
		bits = a.BitLen()
	}
	p, _ := a.Prefix(bits)
	return p
}

func (m *model) admit(a netip.Addr, now int64) l4.Outcome {
	within := func(ps []netip.Prefix) bool {
		return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a.Unmap().WithZone("")) })
	}
	if within(m.spec.Deny) || (len(m.spec.Allow) > 0 && !within(m.spec.Allow)) {
		return l4.RefusedACL
	}
	src := m.source(a)
	used, ok := m.used[src].after(m.spec.SourceRate, now)
	if !ok {
		m.used[src] = used
		return l4.RefusedRate
	}
	rate, ok := m.rate.after(m.spec.Rate, now)
	if !ok {
		m.rate = rate
		return l4.RefusedRate
	}
	if m.spec.PerSource > 0 && m.open[src] >= m.spec.PerSource {
		return l4.RefusedLimit
	}
	m.used[src], m.rate = used, rate
	if m.counts {
		m.open[src]++
	}
	return l4.OK
}

var modelAddrs = func() (as []netip.Addr) {
	for _, s := range []string{
		"10.0.0.1", "10.0.0.2", "10.0.1.1", "11.0.0.1", "::ffff:10.0.0.1", "::ffff:11.0.0.1",
		"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "2001:db9::1", "fe80::1", "fe80::1%eth0", "fe80::1%lo", "::", "0.0.0.0",
	} {
		as = append(as, netip.MustParseAddr(s))
	}
	return as
}()

func drawPrefixes(t *rapid.T, name string) (ps []netip.Prefix) {
	for range rapid.IntRange(0, 3).Draw(t, name) {
		a := rapid.SampledFrom(modelAddrs).Draw(t, "in").Unmap().WithZone("")
		p, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

// Whatever happens, a policy says what the model says: under any lists, rates and
// limits, at any time, across reloads.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := []float64{0, 0.3, 1, 2.5, 7, 1000}
		bySource := rapid.Bool().Draw(t, "source rates") // on or off throughout
		draw := func() Spec {
			s := Spec{
				Deny: drawPrefixes(t, "deny"), Allow: drawPrefixes(t, "allow"),
				PerSource: rapid.IntRange(0, 3).Draw(t, "per source"),
				Rate:      rapid.SampledFrom(rates).Draw(t, "rate"),
				Mask4:     rapid.SampledFrom([]int{0, 32, 24, 8}).Draw(t, "mask4"),
				Mask6:     rapid.SampledFrom([]int{0, 128, 64, 32, 8}).Draw(t, "mask6"),
			}
			if bySource {
				s.SourceRate = rapid.SampledFrom(rates[1:]).Draw(t, "source rate")
			}
			if s.Mask4 == 0 { // masks that are the same have to look the same to the model
				s.Mask4 = 32
			}
			if s.Mask6 == 0 {
				s.Mask6 = 128
			}
			return s
		}
		var now int64
		spec := draw()
		p, err := New(spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.shared.clock = func() int64 { return now }
		m := (&model{}).reload(spec)

		type admitted struct {
			addr netip.Addr
			by   *Policy
			m    *model
		}
		var open []admitted
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				a := rapid.SampledFrom(modelAddrs).Draw(t, "client")
				got, want := p.Admit(a), m.admit(a, now)
				if got != want {
					t.Fatalf("%v at %v under %+v: %v, want %v", a, time.Duration(now), m.spec, got, want)
				}
				if got == l4.OK {
					open = append(open, admitted{a, p, m})
				}
			},
			"release": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing is open")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				o := open[i]
				open = slices.Delete(open, i, i+1)
				if o.m.counts {
					o.m.open[o.m.source(o.addr)]--
				}
				// Without a limit it has to be the same policy; with one, and the same
				// masks, it may be any later one.
				if o.by.perSource > 0 && o.by.here == p.here && rapid.Bool().Draw(t, "to the latest") {
					p.Release(o.addr)
				} else {
					o.by.Release(o.addr)
				}
			},
			"wait": func(t *rapid.T) {
				now += rapid.SampledFrom([]int64{1, 1e6, 1e8, 333_333_333, 1e9, 4e9}).Draw(t, "ns")
			},
			"reload": func(t *rapid.T) {
				spec := draw()
				next, err := New(spec, p)
				if err != nil {
					t.Fatal(err)
				}
				if rapid.IntRange(0, 3).Draw(t, "come to nothing") > 0 {
					p, m = next, m.reload(spec)
				}
			},
			"": func(t *rapid.T) {
				for _, o := range open {
					check(t, o.by)
				}
				check(t, p)
			},
		})
	})
}

// check looks for what should be true of every table at any time.
func check(t interface{ Fatalf(string, ...any) }, p *Policy) {
	if p.here == nil {
		return
	}
	for i := range p.here.shards {
		if err := p.here.shards[i].check(); err != nil {
			t.Fatalf("shard %d: %v", i, err)
		}
	}
}

func (s *shard) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heads) == 0 {
		return nil
	}
	listed := map[int32]bool{}
	for i := s.entries[0].newer; i != 0; i = s.entries[i].newer {
		if listed[i] {
			return fmt.Errorf("the list has a loop at %d", i)
		}
		listed[i] = true
		if n := s.entries[i].newer; s.entries[n].older != i {
			return fmt.Errorf("%d is after %d, which does not know it", n, i)
		}
	}
	used := 0
	for _, i := range s.heads {
		for ; i != 0; i = s.entries[i].next {
			used++
			if e := s.entries[i]; (e.newer != none) != listed[i] || listed[i] != (e.open == 0) || e.open < 0 {
				return fmt.Errorf("entry %+v, in the list: %v", e, listed[i])
			}
		}
	}
	free := 0
	for i := s.free; i != 0; i = s.entries[i].next {
		free++
	}
	if used != s.used || len(listed) != s.idle || s.idle > idleEach || used+free+1 != len(s.entries) {
		return fmt.Errorf("%d used and %d idle, counted as %d and %d; %d free of %d", used, len(listed), s.used, s.idle, free, len(s.entries))
	}
	return nil
}
