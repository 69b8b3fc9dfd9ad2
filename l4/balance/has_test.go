package balance

import (
	"net/netip"
	"testing"
)

// A pool knows the addresses of its backends, whatever state they are in, and forgets
// those that are removed.
func TestPoolHas(t *testing.T) {
	at := func(a string) (s BackendSpec) {
		s.Name, s.Weight = a, 100
		s.Addr.AddrPort = netip.MustParseAddrPort(a)
		return s
	}
	spec := Spec{Name: "p", Algorithm: "round-robin", Backends: []BackendSpec{at("192.0.2.1:53"), at("[2001:db8::1]:53")}}
	p := New(spec, nil)
	has := func(a string) bool { return p.Has(netip.MustParseAddrPort(a)) }
	p.SetFlag(p.Backends()[0].ID(), Down, true)
	if !has("192.0.2.1:53") || !has("[2001:db8::1]:53") || has("192.0.2.1:54") || has("192.0.2.2:53") {
		t.Error("not the addresses of its backends")
	}
	spec.Backends = spec.Backends[1:]
	if p.Update(spec); has("192.0.2.1:53") || !has("[2001:db8::1]:53") {
		t.Error("not those of an update")
	}
}
