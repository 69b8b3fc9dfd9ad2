package main

import (
	"fmt"
	"net/netip"
	"strings"
)

// What scripts/transparent.sh takes unless told otherwise.
const (
	transparentMark  = 0x200000
	transparentTable = 7700
)

// transparentRules returns the commands that have what backends send to clients
// delivered to this host, as a shell script for root: what marks a packet for a
// transparent socket, and the routing of what is marked. Without backends
// they are for whatever comes for a transparent socket. It is what
// scripts/transparent.sh prints; a test holds the two together.
func transparentRules(backends []netip.Prefix) string {
	var v4, v6 []string
	for _, p := range backends {
		s := p.String()
		if p.IsSingleIP() {
			s = p.Addr().String()
		}
		if p.Addr().Is4() {
			v4 = append(v4, s)
		} else {
			v6 = append(v6, s)
		}
	}
	var b strings.Builder
	route := func(family, everything string) {
		fmt.Fprintf(&b, `ip %[1]s route replace local %[2]s dev lo table %[4]d
ip %[1]s rule show fwmark 0x%[3]x/0x%[3]x table %[4]d | grep -q . ||
  ip %[1]s rule add fwmark 0x%[3]x/0x%[3]x table %[4]d
`, family, everything, transparentMark, transparentTable)
	}
	mark := func(match string) {
		fmt.Fprintf(&b, "    %smeta l4proto { tcp, udp } socket transparent 1 meta mark set meta mark or 0x%x accept\n", match, transparentMark)
	}
	if v6 == nil || v4 != nil {
		route("-4", "0.0.0.0/0")
	}
	if v4 == nil || v6 != nil {
		route("-6", "::/0")
	}
	// To declare the table and to delete it makes a fresh one, in one transaction.
	b.WriteString(`nft -f - <<'RULES'
table inet poise_transparent
delete table inet poise_transparent
table inet poise_transparent {
  chain divert {
    type filter hook prerouting priority mangle; policy accept;
`)
	if v4 != nil {
		mark("ip saddr { " + strings.Join(v4, ", ") + " } ")
	}
	if v6 != nil {
		mark("ip6 saddr { " + strings.Join(v6, ", ") + " } ")
	}
	if v4 == nil && v6 == nil {
		mark("")
	}
	b.WriteString("  }\n}\nRULES\n")
	return b.String()
}
