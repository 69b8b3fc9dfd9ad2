package admit

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/poise-lb/poise/l4"
)

// tableSize returns how many sources p remembers, and what its table takes, in bytes.
func tableSize(p *Policy) (sources int, bytes uintptr) {
	bytes = unsafe.Sizeof(*p.here)
	for i := range p.here.shards {
		s := &p.here.shards[i]
		sources += s.used
		bytes += uintptr(cap(s.heads))*4 + uintptr(cap(s.entries))*unsafe.Sizeof(entry{})
	}
	return sources, bytes
}

func numbered(i int) netip.Addr {
	var b [16]byte
	b[0] = 0x20
	binary.BigEndian.PutUint32(b[4:], uint32(i))
	return netip.AddrFrom16(b)
}

// A million sources in one moment take no more memory than the table may have; the
// latest are remembered, the earliest have been forgotten.
func TestMillionSources(t *testing.T) {
	const many = 1_000_000
	p := policy(t, Spec{SourceRate: 1, Mask6: 64}, nil)
	now := at(p)
	for i := range many {
		if o := p.Admit(numbered(i)); o != l4.OK {
			t.Fatalf("source %d: %v", i, o)
		}
	}
	sources, bytes := tableSize(p)
	if sources != maxIdle {
		t.Errorf("%d sources are remembered, want %d", sources, maxIdle)
	}
	if bytes > 20<<20 {
		t.Errorf("the table takes %d bytes", bytes)
	}
	t.Logf("%d sources, %d bytes", sources, bytes)
	const sure = maxIdle * 9 / 10
	for i := many - sure; i < many; i++ {
		if o := p.Admit(numbered(i)); o != l4.RefusedRate {
			t.Fatalf("source %d, %d before the last: %v, want %v", i, many-i, o, l4.RefusedRate)
		}
	}
	if o := p.Admit(numbered(0)); o != l4.OK {
		t.Errorf("the first source, long forgotten: %v", o)
	}
	check(t, p)

	// When their rate has recovered they go, two with every new one.
	*now += 2 * time.Second
	for i := range maxIdle * 2 {
		p.Admit(numbered(many + i))
		if i%1000 == 0 {
			*now += time.Second
		}
	}
	if sources, _ := tableSize(p); sources > 3000 {
		t.Errorf("%d sources are remembered, though at most 2000 came within the second it takes to recover", sources)
	}
	check(t, p)
}

// Who keeps coming is not forgotten over those who came once.
func TestRegularsAreRemembered(t *testing.T) {
	p := policy(t, Spec{SourceRate: 3, Mask6: 64}, nil)
	at(p)
	regular := addr("192.0.2.1")
	for visit := range 4 {
		want := l4.OK
		if visit == 3 {
			want = l4.RefusedRate
		}
		if o := p.Admit(regular); o != want {
			t.Fatalf("visit %d: %v, want %v", visit, o, want)
		}
		for i := range maxIdle / 2 {
			p.Admit(numbered(visit*maxIdle/2 + i))
		}
	}
	check(t, p)
}

// Only what has nothing open is ever forgotten.
func TestOpenIsNeverForgotten(t *testing.T) {
	const many = 20_000
	p := policy(t, Spec{PerSource: 1, SourceRate: 1e6, Mask6: 64}, nil)
	at(p)
	for i := range many {
		if o := p.Admit(numbered(i)); o != l4.OK {
			t.Fatalf("source %d: %v", i, o)
		}
	}
	for i := range 2 * maxIdle { // strangers who come and go
		a := numbered(many + i)
		if o := p.Admit(a); o != l4.OK {
			t.Fatalf("stranger %d: %v", i, o)
		}
		p.Release(a)
	}
	if sources, _ := tableSize(p); sources > maxIdle+many {
		t.Errorf("%d sources are remembered, want at most %d", sources, maxIdle+many)
	}
	for i := range many {
		if o := p.Admit(numbered(i)); o != l4.RefusedLimit {
			t.Fatalf("source %d: %v, want %v", i, o, l4.RefusedLimit)
		}
		p.Release(numbered(i))
	}
	if p.here.open() {
		t.Error("something is open after all was released")
	}
	check(t, p)
}

// Sources with a limit on what is open, and no rate, are gone as soon as they have
// nothing open; also those that a rate has left from before a reload.
func TestNothingIsKeptWithoutRate(t *testing.T) {
	p := policy(t, Spec{PerSource: 1}, nil)
	for i := range 10_000 {
		p.Admit(numbered(i))
		p.Release(numbered(i))
	}
	if n, _ := tableSize(p); n != 0 {
		t.Errorf("%d sources are remembered", n)
	}
	at(p)
	p = policy(t, Spec{PerSource: 1, SourceRate: 1}, p)
	for i := range 10_000 {
		p.Admit(numbered(i))
		p.Release(numbered(i))
	}
	p = policy(t, Spec{PerSource: 1}, p)
	for i := range 10_000 {
		p.Admit(numbered(1_000_000 + i))
		p.Release(numbered(1_000_000 + i))
	}
	if n, _ := tableSize(p); n > 1000 {
		t.Errorf("%d sources are remembered", n)
	}
	check(t, p)
}

// Addresses in a row, which is what networks are, spread over the shards.
func TestHashSpreads(t *testing.T) {
	v4 := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	v6 := func(shift int) func(i int) netip.Addr {
		return func(i int) netip.Addr {
			var b [16]byte
			binary.BigEndian.PutUint64(b[8*(1-shift/64):], uint64(i)<<(shift%64))
			b[0] |= 0x20
			return netip.AddrFrom16(b)
		}
	}
	for name, gen := range map[string]func(int) netip.Addr{"IPv4": v4, "IPv6 hosts": v6(0), "IPv6 /64": v6(64), "IPv6 /48": v6(80)} {
		for range 5 { // seeds
			tab := newTable(newMasks(0, 0))
			const each = 1000
			var counts [shards]int
			heads := map[uint32]int{}
			for i := range shards * each {
				src := tab.masks.source(gen(i))
				h := src.hash(tab.seed)
				counts[h>>58]++
				if h>>58 == 0 {
					heads[uint32(h)%1024]++
				}
			}
			for i, n := range counts {
				if n < each*3/4 || n > each*5/4 { // eight standard deviations
					t.Errorf("%s: %d of %d in shard %d", name, n, shards*each, i)
				}
			}
			for _, n := range heads {
				if n > 12 { // 1000 in 1024: one in 10^10 has more
					t.Errorf("%s: a chain of %d", name, n)
				}
			}
		}
	}
}

func TestMasks(t *testing.T) {
	for bits := range 129 {
		m := newMasks(min(bits, 32), bits)
		for _, s := range []string{"255.255.255.255", "170.85.170.85", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2aaa:5555:aaaa:5555:aaaa:5555:aaaa:5555"} {
			a := addr(s)
			n := min(bits, a.BitLen())
			if bits == 0 {
				n = a.BitLen()
			}
			p, err := a.Prefix(n)
			if err != nil {
				t.Fatal(err)
			}
			b := p.Addr().As16()
			want := source{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
			if got := m.source(a); got != want {
				t.Errorf("%v/%d: %x, want %x", a, bits, got, want)
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	p := policy(t, Spec{
		Deny: prefixes("10.0.0.0/8", "2001:db8:bad::/48"), Allow: prefixes("0.0.0.0/0", "::/0"),
		Rate: 1e9, SourceRate: 1e9, PerSource: 10, Mask4: 32, Mask6: 64,
	}, nil)
	as := []netip.Addr{addr("192.0.2.1"), addr("::ffff:192.0.2.2"), addr("2001:db8::1"), addr("fe80::1%eth0"), addr("10.0.0.1")}
	i := 0
	run := func() {
		a := as[i%len(as)]
		if p.Admit(a) == l4.OK {
			p.Release(a)
		}
		i++
	}
	for range 1000 {
		run()
	}
	runtime.GC()
	if n := testing.AllocsPerRun(1000, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
