package source

import (
	"net/netip"
	"testing"
)

func TestOf(t *testing.T) {
	for client, want := range map[string]string{
		"192.0.2.7":             "192.0.2.7",
		"::ffff:192.0.2.7":      "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":  "2001:db8:1:2::",
		"2001:db8:1:2:ffff::":   "2001:db8:1:2::",
		"2001:db8:1:3::":        "2001:db8:1:3::",
		"fe80::1%eth0":          "fe80::",
		"::ffff:192.0.2.7%eth0": "192.0.2.7",
	} {
		if got := Of(netip.MustParseAddr(client)); got != netip.MustParseAddr(want) {
			t.Errorf("%s counts as %s, want %s", client, got, want)
		}
	}
	if got := Of(netip.Addr{}); got.IsValid() {
		t.Errorf("no address counts as %s", got)
	}
}
