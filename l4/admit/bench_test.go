package admit

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4"
)

const manyPrefixes = 100_000

// somePrefixes returns n different prefixes such as threat feeds have: mostly
// IPv4 networks and hosts, and one in five IPv6. None holds 198.18.0.0/15 or
// 2001:db8::/32, where the clients of the benchmarks come from.
func somePrefixes(n int) (ps []netip.Prefix) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[netip.Prefix]bool{}
	for len(ps) < n {
		var a [16]byte
		var p netip.Prefix
		if len(ps)%5 == 4 {
			binary.BigEndian.PutUint64(a[:], 0x2a00_0000_0000_0000|r.Uint64()>>8)
			p = netip.PrefixFrom(netip.AddrFrom16(a), 32+r.IntN(33)).Masked()
		} else {
			binary.BigEndian.PutUint32(a[:], 0x3000_0000|r.Uint32()>>2) // 48.0.0.0 to 127.255.255.255
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte(a[:4])), 16+r.IntN(17)).Masked()
		}
		if !seen[p] {
			seen[p] = true
			ps = append(ps, p)
		}
	}
	return ps
}

// someClients returns n addresses, half of them IPv6, each another /32 and /64.
func someClients(n int) []netip.Addr {
	as := make([]netip.Addr, n)
	for i := range as {
		if i%2 == 0 {
			as[i] = netip.AddrFrom4([4]byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)})
		} else {
			as[i] = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(i >> 16), byte(i >> 8), byte(i), 15: 1})
		}
	}
	return as
}

func benchmarkPolicy(b *testing.B, spec Spec, clients int) {
	p, err := New(spec, nil)
	if err != nil {
		b.Fatal(err)
	}
	as := someClients(clients)
	for _, a := range as { // tables grow once
		if p.Admit(a) == l4.OK {
			p.Release(a)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(as)); pb.Next(); i++ {
			a := as[i%len(as)]
			if o := p.Admit(a); o != l4.OK {
				b.Error(o)
				return
			}
			p.Release(a)
		}
	})
}

// One Admit and its Release, of clients that come in turn.
func BenchmarkAdmit(b *testing.B) {
	prefixes := somePrefixes(manyPrefixes)
	everyone := []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("2001:db8::/32")}
	limits := Spec{PerSource: 1000, Rate: 1e9, SourceRate: 1e9, Mask4: 32, Mask6: 64}
	all := limits
	all.Deny = prefixes
	all.Allow = append(everyone, prefixes...)
	for _, c := range []struct {
		name    string
		spec    Spec
		clients int
	}{
		{"no policy", Spec{}, 1000},
		{"100000 denied", Spec{Deny: prefixes}, 1000},
		{"100000 denied and allowed", Spec{Deny: prefixes, Allow: all.Allow}, 1000},
		{"per source", Spec{PerSource: 1000, Mask6: 64}, 1000},
		{"rate", Spec{Rate: 1e9}, 1000},
		{"source rate", Spec{SourceRate: 1e9, Mask6: 64}, 1000},
		{"everything, 1000 sources", all, 1000},
		{"everything, 100000 sources", all, 100_000},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkPolicy(b, c.spec, c.clients) })
	}
}

// Compiling the lists, which a reload does.
func BenchmarkNew(b *testing.B) {
	spec := Spec{Deny: somePrefixes(manyPrefixes)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(spec, nil); err != nil {
			b.Fatal(err)
		}
	}
}
