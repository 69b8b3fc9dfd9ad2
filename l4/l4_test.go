package l4_test

import (
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4"
)

func TestProtoString(t *testing.T) {
	if got := l4.TCP.String() + " " + l4.UDP.String(); got != "tcp udp" {
		t.Errorf("got %q", got)
	}
}

func TestFlowHashIgnoresProtoAndVIP(t *testing.T) {
	a := l4.Flow{Client: netip.MustParseAddrPort("10.0.0.1:1024")}
	b := a
	b.Proto, b.VIP = l4.UDP, netip.MustParseAddrPort("192.0.2.1:53")
	if a.Hash(7) != b.Hash(7) {
		t.Error("the hash is of the client only")
	}
}

func TestHashAddrOfMappedAddress(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.1")
	if l4.HashAddr(a, 0, 1) != l4.HashAddr(netip.AddrFrom16(a.As16()), 0, 1) {
		t.Error("a dual-stack listener and an IPv4 one disagree about one client")
	}
}

// Clients come in runs: neighbours in address, neighbours in port. Each part of
// the hash that somebody may reduce it by has to be even for them.
func TestFlowHashSpread(t *testing.T) {
	inputs := map[string]func(i int) (netip.Addr, uint16){
		"addresses of a /16": func(i int) (netip.Addr, uint16) {
			return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 0
		},
		"every 256th address": func(i int) (netip.Addr, uint16) {
			return netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 0
		},
		"ports of one client": func(i int) (netip.Addr, uint16) {
			return netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(i)
		},
		"IPv6 networks": func(i int) (netip.Addr, uint16) {
			return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0, byte(i >> 8), byte(i)}), 0
		},
		"IPv6 hosts": func(i int) (netip.Addr, uint16) {
			return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 14: byte(i >> 8), 15: byte(i)}), 0
		},
	}
	const n, cells = 1 << 16, 256
	for name, input := range inputs {
		t.Run(name, func(t *testing.T) {
			var high, low, mod [cells]float64
			distinct := make(map[uint64]bool, n)
			for i := range n {
				addr, port := input(i)
				h := l4.HashAddr(addr, port, 1)
				distinct[h] = true
				high[h>>56]++
				low[h&255]++
				mod[h%65537%cells]++
			}
			if len(distinct) != n {
				t.Errorf("%d of %d hashes are distinct", len(distinct), n)
			}
			for part, counts := range map[string][cells]float64{"high": high, "low": low, "mod": mod} {
				chi := 0.0
				for _, c := range counts {
					chi += (c - n/cells) * (c - n/cells) / (n / cells)
				}
				// 255 degrees of freedom: mean 255, deviation 22.6; this is
				// six deviations and the inputs are fixed.
				if chi > 255+6*22.6 {
					t.Errorf("%s bits: chi squared %.0f", part, chi)
				}
			}
		})
	}
}

func TestFlowHashAllocatesNothing(t *testing.T) {
	f := l4.Flow{Client: netip.MustParseAddrPort("[2001:db8::1]:443")}
	if n := testing.AllocsPerRun(100, func() { f.Hash(1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFlowHash(b *testing.B) {
	f := l4.Flow{Client: netip.MustParseAddrPort("10.0.0.1:1024")}
	for b.Loop() {
		f.Hash(1)
	}
}

// A client's address goes to a backend as a source only where it means the client there
// too.
func TestCanAppearTo(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")
	for _, c := range []struct {
		client  string
		backend netip.Addr
		want    bool
	}{
		{"192.0.2.1", v4, true},
		{"10.1.2.3", v4, true},
		{"127.0.0.5", v4, true},
		{"192.0.2.1", v6, false},
		{"2001:db8::1", v6, true},
		{"fd00::1", v6, true},
		{"::1", v6, true},
		{"2001:db8::1", v4, false},
		{"169.254.1.2", v4, false},
		{"fe80::1", v6, false},
		{"fe80::1%eth0", v6, false},
		{"224.0.0.1", v4, false},
		{"ff02::1", v6, false},
		{"0.0.0.0", v4, false},
		{"255.255.255.255", v4, false},
	} {
		f := l4.Flow{Client: netip.AddrPortFrom(netip.MustParseAddr(c.client), 1)}
		if got := f.CanAppearTo(c.backend); got != c.want {
			t.Errorf("%s to %s: %v", c.client, c.backend, got)
		}
	}
}
