package config

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
)

// admissionKeys are the keys of a service that say whom it lets in.
func admissionKeys(a *admit.Spec) []key {
	return []key{
		section("access",
			key{name: "allow", typ: "list of prefixes", def: none, read: readPrefixes(&a.Allow), members: each(&a.Allow)},
			key{name: "deny", typ: "list of prefixes", def: none, read: readPrefixes(&a.Deny), members: each(&a.Deny)},
			key{name: "allow_files", typ: "list of file paths", def: none, read: readFiles(&a.AllowFiles), members: each(&a.AllowFiles)},
			key{name: "deny_files", typ: "list of file paths", def: none, read: readFiles(&a.DenyFiles), members: each(&a.DenyFiles)},
		),
		section("limits",
			count("per_source", "0", &a.PerSource),
			rate("rate", &a.Rate),
			rate("source_rate", &a.SourceRate),
			number("mask4", "32", &a.Mask4, 1, 32),
			number("mask6", "64", &a.Mask6, 1, 128),
		),
		choice("on_refuse", "reset", &a.Silent, either("reset", "drop")),
	}
}

// finishAdmission applies the rules of admission that concern several keys.
func (s *service) finishAdmission() {
	a := s.Admit
	sources := a.PerSource > 0 || a.SourceRate > 0
	for _, mask := range []string{"limits.mask4", "limits.mask6"} {
		if s.gives(mask) && !sources {
			s.problem([]string{mask, "limits.per_source", "limits.source_rate"},
				"has no effect without a limit of single sources; set per_source or source_rate, or remove it")
		}
	}
	refuses := sources || a.Rate > 0 || len(a.Allow)+len(a.Deny)+len(a.AllowFiles)+len(a.DenyFiles) > 0
	switch {
	case !s.gives("on_refuse"):
	case s.protocol == l4.UDP:
		s.problem([]string{"on_refuse", "protocol"}, "has no effect with protocol: udp, where what is refused is dropped; remove it")
	case !refuses:
		s.problem([]string{"on_refuse", "access", "limits"}, "has no effect on a service that refuses nobody; set access or limits, or remove it")
	}
}

// The bounds of a rate, in events a second. A lower one than the least is not for
// limiting but for denying.
const (
	leastRate = 0.001
	mostRate  = 10_000_000
)

// rate is a number of events a second, perhaps with decimals.
func rate(name string, dst *float64) key {
	return key{name: name, typ: "0, or number a second, 0.001 to 10000000", def: "0", read: func(v *value) {
		if !v.unquoted("a number") {
			return
		}
		f, err := strconv.ParseFloat(v.text, 64)
		if !factor.MatchString(v.text) || err != nil || f != 0 && (f < leastRate || f > mostRate) {
			v.fail("%s is not a rate; write 0 for no limit, or so many a second, from 0.001 to 10000000, such as 100 or 0.5", v.quoted())
			return
		}
		*dst = f
	}, show: decimal(dst)}
}

// each is the way back of a list whose order is of no meaning.
func each[T any](l *[]T) func() []string {
	return func() []string {
		texts := make([]string, len(*l))
		for i, item := range *l {
			texts[i] = fmt.Sprint(item)
		}
		return texts
	}
}

// readPrefixes stores a list of prefixes and single addresses.
func readPrefixes(dst *[]netip.Prefix) func(*value) {
	return func(v *value) {
		if !v.is(list, "[10.0.0.0/8]") {
			return
		}
		var prefixes []netip.Prefix
		seen := map[netip.Prefix]bool{}
		for _, item := range v.elements() {
			p, ok := item.prefix()
			switch {
			case !ok:
			case seen[p]:
				item.fail("%s is in this list already; keep one", p)
			default:
				prefixes = append(prefixes, p)
				seen[p] = true
			}
			v.bad = v.bad || item.bad || item.missing
		}
		if !v.bad {
			*dst = prefixes
		}
	}
}

// prefix reads "10.0.0.0/8", or an address alone. IPv4 in IPv6 clothes is IPv4:
// that is what addresses of clients are compared as.
func (v *value) prefix() (p netip.Prefix, ok bool) {
	if !v.scalar("10.0.0.0/8") {
		return p, false
	}
	p, err := netip.ParsePrefix(v.text)
	if a, alone := netip.ParseAddr(v.text); alone == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	if err == nil && p.Addr().Is4In6() {
		if p.Bits() < 96 {
			v.fail("%s is more than the IPv4 addresses in it; write IPv4 prefixes as 10.0.0.0/8", v.quoted())
			return p, false
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	switch {
	case err != nil:
		v.fail("%s is no prefix; write one such as 10.0.0.0/8 or 2001:db8::/32, or an address", v.quoted())
	case p != p.Masked():
		v.fail("%s has bits beyond its length; write %s for the network, or %s for the one address", v.quoted(), p.Masked(), p.Addr())
	default:
		return p, true
	}
	return p, false
}

// readFiles stores a list of absolute paths.
func readFiles(dst *[]string) func(*value) {
	return func(v *value) {
		if !v.is(list, "[/etc/poise/deny.list]") {
			return
		}
		files, ok := v.texts("/etc/poise/deny.list", plainFile("/etc/poise/deny.list"))
		if ok && !v.twice(files) {
			*dst = files
		}
	}
}

// plainFile makes a check for the absolute path of a file.
func plainFile(example string) func(string) string {
	return func(s string) string {
		if !path.IsAbs(s) || path.Clean(s) != s || !printable(s) {
			return "write the absolute path of a file, plainly, such as " + example
		}
		return ""
	}
}

// plainFileOrNone is plainFile for a file there need not be.
func plainFileOrNone(example string) func(string) string {
	check := plainFile(example)
	return func(s string) string {
		if s == "" {
			return ""
		}
		return check(s)
	}
}
