package admit

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/l4"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(ss ...string) (ps []netip.Prefix) {
	for _, s := range ss {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// policy compiles spec, after old if that is not nil.
func policy(t testing.TB, spec Spec, old *Policy) *Policy {
	t.Helper()
	p, err := New(spec, old)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// at stops the clock of p's lineage at the time it returns.
func at(p *Policy) *time.Duration {
	now := new(time.Duration)
	p.shared.clock = func() int64 { return int64(*now) }
	return now
}

// admits counts how many of n are admitted from a; the others must be refused for
// the reason given.
func admits(t *testing.T, p *Policy, a string, n int, refusal l4.Outcome) (ok int) {
	t.Helper()
	for range n {
		switch o := p.Admit(addr(a)); o {
		case l4.OK:
			ok++
		case refusal:
		default:
			t.Fatalf("%s: %v, want %v or %v", a, o, l4.OK, refusal)
		}
	}
	return ok
}

func TestNobodyIsRefusedWithoutPolicy(t *testing.T) {
	for name, p := range map[string]*Policy{"nil": nil, "zero": policy(t, Spec{}, nil)} {
		for _, a := range []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1"), {}} {
			if o := p.Admit(a); o != l4.OK {
				t.Errorf("%s policy, %v: %v", name, a, o)
			}
			p.Release(a)
		}
		if p.Silent() {
			t.Errorf("%s policy is silent", name)
		}
		if got := p.Prefixes(); !got.AllowAll || len(got.Deny)+len(got.Allow) > 0 {
			t.Errorf("%s policy has %+v", name, got)
		}
	}
	if !policy(t, Spec{Silent: true}, nil).Silent() {
		t.Error("a silent policy is not")
	}
}

func TestLists(t *testing.T) {
	p := policy(t, Spec{
		Deny:  prefixes("10.1.0.0/16", "2001:db8:bad::/48", "::ffff:172.16.0.0/108"),
		Allow: prefixes("10.0.0.0/8", "10.1.2.0/24", "2001:db8::/32", "172.16.0.0/12", "fe80::/10"),
	}, nil)
	for a, want := range map[string]l4.Outcome{
		"10.0.0.1":           l4.OK,
		"::ffff:10.0.0.1":    l4.OK,
		"10.1.0.1":           l4.RefusedACL,
		"::ffff:10.1.0.1":    l4.RefusedACL,
		"10.1.2.1":           l4.RefusedACL, // deny wins, however narrow the allowed prefix
		"11.0.0.1":           l4.RefusedACL,
		"172.16.3.4":         l4.RefusedACL, // the list says it as a mapped prefix
		"2001:db8::1":        l4.OK,
		"2001:db8:bad::1":    l4.RefusedACL,
		"2001:db8:bad::1%lo": l4.RefusedACL,
		"fe80::1%eth0":       l4.OK,
		"::":                 l4.RefusedACL,
	} {
		if o := p.Admit(addr(a)); o != want {
			t.Errorf("%s: %v, want %v", a, o, want)
		}
	}
	if o := p.Admit(netip.Addr{}); o != l4.RefusedACL {
		t.Errorf("no address: %v, want %v: it is not on the list", o, l4.RefusedACL)
	}
}

func TestPrefixes(t *testing.T) {
	p := policy(t, Spec{
		Deny:  prefixes("10.1.0.0/16", "10.0.0.0/16", "10.1.2.0/24", "::ffff:192.0.2.0/120"),
		Allow: prefixes("2001:db8::/33", "2001:db8:8000::/33", "10.0.0.0/8"),
	}, nil)
	if got, want := policy(t, Spec{Deny: prefixes("::ffff:0:0/96", "::/96")}, nil).Prefixes().Deny, prefixes("0.0.0.0/0", "::/96"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	want := Prefixes{
		Deny:  prefixes("10.0.0.0/15", "192.0.2.0/24"),
		Allow: prefixes("10.0.0.0/8", "2001:db8::/32"),
	}
	less := func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) }
	got := p.Prefixes()
	slices.SortFunc(got.Deny, less)
	slices.SortFunc(got.Allow, less)
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// When several checks would refuse, the first names the outcome.
func TestOrder(t *testing.T) {
	p := policy(t, Spec{
		Deny: prefixes("10.0.0.0/8"), Allow: prefixes("10.0.0.0/8", "11.0.0.0/8"),
		Rate: 3, SourceRate: 2, PerSource: 1,
	}, nil)
	at(p)
	try := func(a string, want l4.Outcome, why string) {
		t.Helper()
		if o := p.Admit(addr(a)); o != want {
			t.Errorf("%s: %v, want %v: %s", a, o, want, why)
		}
	}
	try("10.0.0.1", l4.RefusedACL, "denied")
	try("12.0.0.1", l4.RefusedACL, "not allowed")
	try("11.0.0.1", l4.OK, "allowed")
	try("11.0.0.1", l4.RefusedLimit, "one is open")
	p.Release(addr("11.0.0.1"))
	try("11.0.0.1", l4.OK, "nothing is open")
	try("11.0.0.1", l4.RefusedRate, "beyond its rate and the number open: the rate comes first")
	try("11.0.0.2", l4.OK, "the third of the service")
	try("11.0.0.3", l4.RefusedRate, "the service's rate")
	try("11.0.0.2", l4.RefusedRate, "beyond the service's rate and the number open: the rate comes first")
	try("10.0.0.1", l4.RefusedACL, "denied, whatever the rates")
}

// A source beyond its own rate leaves the service's to the others, and one that
// has too many open uses up neither.
func TestRefusalConsumesNothing(t *testing.T) {
	p := policy(t, Spec{Rate: 10, SourceRate: 4}, nil)
	at(p)
	if n := admits(t, p, "10.0.0.1", 1000, l4.RefusedRate); n != 4 {
		t.Errorf("%d of the first source, want 4", n)
	}
	if n := admits(t, p, "10.0.0.2", 1000, l4.RefusedRate); n != 4 {
		t.Errorf("%d of the second source, want 4", n)
	}
	if n := admits(t, p, "10.0.0.3", 1000, l4.RefusedRate); n != 2 {
		t.Errorf("%d of the third source, want the 2 that are left of 10", n)
	}

	p = policy(t, Spec{Rate: 5, SourceRate: 4, PerSource: 2}, nil)
	at(p)
	if n := admits(t, p, "10.0.0.1", 1000, l4.RefusedLimit); n != 2 {
		t.Errorf("%d open, want 2", n)
	}
	p.Release(addr("10.0.0.1"))
	p.Release(addr("10.0.0.1"))
	if n := admits(t, p, "10.0.0.1", 2, l4.RefusedLimit); n != 2 {
		t.Errorf("%d after all had ended, want 2: the refused ones were charged", n)
	}
	if n := admits(t, p, "10.0.0.2", 2, l4.RefusedRate); n != 1 {
		t.Errorf("%d of another source, want the one that is left of 5", n)
	}
}

func TestRates(t *testing.T) {
	for _, c := range []struct {
		rate    float64
		atOnce  int
		every   time.Duration // then one
		seconds int
	}{
		{rate: 0.1, atOnce: 1, every: 10 * time.Second, seconds: 100},
		{rate: 1, atOnce: 1, every: time.Second, seconds: 20},
		{rate: 2.5, atOnce: 2, every: 400 * time.Millisecond, seconds: 20},
		{rate: 7, atOnce: 7, every: time.Second / 7, seconds: 20},
		{rate: 1000, atOnce: 1000, every: time.Millisecond, seconds: 3},
	} {
		for _, spec := range []Spec{{Rate: c.rate}, {SourceRate: c.rate}} {
			p := policy(t, spec, nil)
			now := at(p)
			*now = 5 * time.Second
			if n := admits(t, p, "10.0.0.1", 2*c.atOnce+1, l4.RefusedRate); n != c.atOnce {
				t.Errorf("%+v: %d at once, want %d", spec, n, c.atOnce)
			}
			*now += c.every - 2*time.Nanosecond // intervals are rounded
			if n := admits(t, p, "10.0.0.1", 1, l4.RefusedRate); n != 0 {
				t.Errorf("%+v: one more before %v", spec, c.every)
			}
			*now += 4 * time.Nanosecond
			if n := admits(t, p, "10.0.0.1", 2, l4.RefusedRate); n != 1 {
				t.Errorf("%+v: %d more after %v, want 1", spec, n, c.every)
			}
			// Under four times the rate, over a long time.
			total := 0
			for range 4 * int(c.rate*float64(c.seconds)) {
				*now += c.every / 4
				total += admits(t, p, "10.0.0.1", 1, l4.RefusedRate)
			}
			if want := c.rate * float64(c.seconds); math.Abs(float64(total)-want) > 1 {
				t.Errorf("%+v: %d in %d s, want %v", spec, total, c.seconds, want)
			}
			// A long silence is worth no more than a short one.
			*now += 1000 * time.Hour
			if n := admits(t, p, "10.0.0.1", 2*c.atOnce+1, l4.RefusedRate); n != c.atOnce {
				t.Errorf("%+v: %d at once after a long time, want %d", spec, n, c.atOnce)
			}
		}
	}
}

// Rates far beyond reason are limits all the same, and no arithmetic overflows.
func TestExtremeRates(t *testing.T) {
	p := policy(t, Spec{Rate: 1e-300, SourceRate: 1e300}, nil)
	now := at(p)
	*now = 100 * 365 * 24 * time.Hour
	if n := admits(t, p, "10.0.0.1", 10, l4.RefusedRate); n != 1 {
		t.Errorf("%d at next to no rate, want 1", n)
	}
	p = policy(t, Spec{SourceRate: math.MaxFloat64}, nil)
	at(p)
	if n := admits(t, p, "10.0.0.1", 10_000, l4.RefusedRate); n != 10_000 {
		t.Errorf("%d at next to any rate, want all 10000", n)
	}
}

func TestPerSource(t *testing.T) {
	p := policy(t, Spec{PerSource: 3, Mask4: 24, Mask6: 56}, nil)
	if n := admits(t, p, "10.0.0.1", 2, l4.RefusedLimit) + admits(t, p, "::ffff:10.0.0.2", 2, l4.RefusedLimit); n != 3 {
		t.Errorf("%d from one /24, want 3", n)
	}
	if n := admits(t, p, "10.0.1.1", 5, l4.RefusedLimit); n != 3 {
		t.Errorf("%d from another /24, want 3", n)
	}
	if n := admits(t, p, "2001:db8:0:100::1%eth0", 2, l4.RefusedLimit) + admits(t, p, "2001:db8:0:1ff::1%eth1", 2, l4.RefusedLimit); n != 3 {
		t.Errorf("%d from one /56, want 3", n)
	}
	p.Release(addr("10.0.0.77")) // any address of the source will do
	if n := admits(t, p, "10.0.0.3", 2, l4.RefusedLimit); n != 1 {
		t.Errorf("%d after one was released, want 1", n)
	}
	p.Release(addr("10.9.9.9")) // was never admitted
	check(t, p)
}

func TestReleasedTooOften(t *testing.T) {
	p := policy(t, Spec{PerSource: 3, SourceRate: 100}, nil)
	at(p)
	admits(t, p, "10.0.0.1", 3, l4.OK)
	for range 10 {
		p.Release(addr("10.0.0.1"))
	}
	if n := admits(t, p, "10.0.0.1", 5, l4.RefusedLimit); n != 3 {
		t.Errorf("%d after too many were released, want 3: what is open is never below 0", n)
	}
	check(t, p)
}

func TestInvalidSpecs(t *testing.T) {
	for name, spec := range map[string]Spec{
		"Rate is -1":           {Rate: -1},
		"Rate is NaN":          {Rate: math.NaN()},
		"SourceRate is +Inf":   {SourceRate: math.Inf(1)},
		"PerSource is -1":      {PerSource: -1},
		"Mask4 is 33":          {Mask4: 33},
		"Mask6 is 129":         {Mask6: 129},
		"Mask6 is -1":          {Mask6: -1},
		"list: invalid Prefix": {Deny: []netip.Prefix{{}}},
	} {
		if _, err := New(spec, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want an error about %q", spec, err, name)
		}
	}
}
