package balance

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		addr                Address
		text, network, dial string
		valid               bool
	}{
		{Address{AddrPort: netip.MustParseAddrPort("10.0.0.1:5432")}, "10.0.0.1:5432", "tcp", "10.0.0.1:5432", true},
		{Address{AddrPort: netip.MustParseAddrPort("[2001:db8::1]:80")}, "[2001:db8::1]:80", "tcp", "[2001:db8::1]:80", true},
		{Address{Unix: "/run/db.sock"}, "unix:/run/db.sock", "unix", "/run/db.sock", true},
		{Address{}, "invalid AddrPort", "tcp", "invalid AddrPort", false},
	} {
		if c.addr.String() != c.text || c.addr.Network() != c.network || c.addr.Dial() != c.dial || c.addr.IsValid() != c.valid {
			t.Errorf("%+v: %q, %q, %q, %v", c.addr, c.addr.String(), c.addr.Network(), c.addr.Dial(), c.addr.IsValid())
		}
		if got, err := json.Marshal(c.addr); err != nil || string(got) != `"`+c.text+`"` {
			t.Errorf("%+v as JSON: %s, %v", c.addr, got, err)
		}
	}
	if (Address{Unix: "/a"}) == (Address{Unix: "/b"}) {
		t.Error("different sockets are equal")
	}
}

func TestFlagWords(t *testing.T) {
	for f, want := range map[Flag][2]string{
		0:                      {"up", "up"},
		Down:                   {"down", "down"},
		Ejected:                {"ejected", "ejected"},
		Drained:                {"drain", "drain"},
		Maint:                  {"maint", "maint"},
		Unresolved:             {"unresolved", "unresolved"},
		Removed:                {"removed", "removed"},
		Down | Ejected:         {"down+ejected", "down"},
		Down | Drained:         {"down+drain", "drain"},
		Drained | Maint:        {"drain+maint", "maint"},
		Down | Maint | Removed: {"down+maint+removed", "removed"},
		Standby:                {"standby", "standby"},
		Standby | Ejected:      {"ejected+standby", "standby"},
		Unresolved | Down:      {"down+unresolved", "unresolved"},
		1 << 20:                {"unknown", "up"},
	} {
		if f.String() != want[0] || f.State() != want[1] {
			t.Errorf("%#x: %q and %q, want %q", uint32(f), f.String(), f.State(), want)
		}
	}
	if got := strings.Join(States(), " "); got != "up half-open down ejected drain maint unresolved removed standby" {
		t.Errorf("the words: %s", got)
	}
	for f := range Standby << 1 {
		if !slices.Contains(States(), f.State()) {
			t.Errorf("%v: %q is not in the list", f, f.State())
		}
	}
}

func TestLease(t *testing.T) {
	var none Lease
	none.Release()
	(*Lease)(nil).Release()
	if none.Backend() != nil {
		t.Error("the zero lease has a backend")
	}

	p := New(poolSpec("first", 100), nil)
	one, two := acquire(t, p, flow(1)), acquire(t, p, flow(2))
	b := one.Backend()
	if b.Active() != 2 || b.Total() != 2 || p.Active() != 2 {
		t.Errorf("active %d, total %d, pool %d", b.Active(), b.Total(), p.Active())
	}
	one.Release()
	one.Release()
	if b.Active() != 1 || one.Backend() != b {
		t.Errorf("released twice: active %d", b.Active())
	}
	two.Release()
	if b.Active() != 0 || b.Total() != 2 {
		t.Errorf("at the end: active %d, total %d", b.Active(), b.Total())
	}
}
