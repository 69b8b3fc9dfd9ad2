package l4_test

import (
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4"
)

func TestListenRelations(t *testing.T) {
	at := func(s string) l4.Listen { return l4.Listen{Addr: netip.MustParseAddrPort(s)} }
	v6only := l4.Listen{Addr: netip.MustParseAddrPort("[::]:53"), V6Only: true}
	for _, c := range []struct {
		a, b                     l4.Listen
		overlap, covers, covers2 bool
	}{
		{at("127.0.0.1:53"), at("127.0.0.1:53"), true, true, true},
		{at("127.0.0.1:53"), at("127.0.0.1:54"), false, false, false},
		{at("127.0.0.1:53"), at("127.0.0.2:53"), false, false, false},
		{at("0.0.0.0:53"), at("127.0.0.2:53"), true, true, false},
		{at("0.0.0.0:53"), at("[::1]:53"), false, false, false},
		{at("0.0.0.0:53"), v6only, false, false, false},
		{at("[::]:53"), at("0.0.0.0:53"), true, true, false},
		{at("[::]:53"), at("127.0.0.1:53"), true, true, false},
		{at("[::]:53"), at("[::1]:53"), true, true, false},
		{at("[::]:53"), v6only, true, true, false},
		{v6only, at("[::1]:53"), true, true, false},
		{v6only, at("127.0.0.1:53"), false, false, false},
	} {
		if c.a.Overlaps(c.b) != c.overlap || c.b.Overlaps(c.a) != c.overlap {
			t.Errorf("%v and %v overlap: %v, %v", c.a, c.b, c.a.Overlaps(c.b), c.b.Overlaps(c.a))
		}
		if c.a.Covers(c.b) != c.covers || c.b.Covers(c.a) != c.covers2 {
			t.Errorf("%+v covers %+v: %v, the other way round %v", c.a, c.b, c.a.Covers(c.b), c.b.Covers(c.a))
		}
	}
}
