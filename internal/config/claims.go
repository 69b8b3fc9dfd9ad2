package config

import (
	"cmp"
	"net/netip"
	"slices"
)

// claims are the listeners of a configuration, indexed by what each takes of a port,
// so that conflicts are found without comparing every listener with every other.
type claims struct {
	all   []listen
	first map[place]int // the first of all that claims the place
}

// place is a part of a port: one address, or the unspecified address of a family for
// a listener on all addresses of it, or the zero Addr for one on all of both.
type place struct {
	udp  bool
	port uint16
	addr netip.Addr
	any  bool // some listener among the addresses that addr stands for
}

// anyOf returns the unspecified address of the family of a.
func anyOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// claim adds the listener, with a single port of its range.
func (c *claims) claim(l listen, i int, port uint16) {
	at := func(a netip.Addr, some bool) place { return place{l.udp, port, a, some} }
	places := []place{at(netip.Addr{}, true), at(anyOf(l.addr), true), at(l.addr, false)}
	if l.dual {
		places = []place{
			at(netip.Addr{}, true), at(netip.Addr{}, false),
			at(netip.IPv4Unspecified(), true), at(netip.IPv6Unspecified(), true),
		}
	}
	for _, p := range places {
		if _, taken := c.first[p]; !taken {
			c.first[p] = i
		}
	}
}

// find returns the first listener that claims one of the places; -1 is none.
func (c *claims) find(places ...place) int {
	found := -1
	for _, p := range places {
		if i, ok := c.first[p]; ok && (found < 0 || i < found) {
			found = i
		}
	}
	return found
}

// inTheWay returns the first listener that shares a port of l with it: one of the two
// takes what is sent to the other.
func (c *claims) inTheWay(l listen, port uint16) int {
	at := func(a netip.Addr, some bool) place { return place{l.udp, port, a, some} }
	switch {
	case l.dual:
		return c.find(at(netip.Addr{}, true))
	case l.addr.IsUnspecified():
		return c.find(at(l.addr, true))
	}
	return c.find(at(netip.Addr{}, false), at(anyOf(l.addr), false), at(l.addr, false))
}

// receiving returns the listener that receives what this host sends to an address and
// port of its own, as far as that can be told: which other addresses are its own is
// not asked, so those of loopback alone lead to a listener on all addresses.
func (c *claims) receiving(udp bool, a netip.Addr, port uint16) (l listen, ok bool) {
	if !a.IsValid() {
		return listen{}, false
	}
	places := []place{{udp, port, a, false}}
	if a.IsLoopback() {
		places = append(places, place{udp, port, anyOf(a), false}, place{udp, port, netip.Addr{}, false})
	}
	i := c.find(places...)
	if i < 0 {
		return listen{}, false
	}
	return c.all[i], true
}

// overlaps reports every listener that shares an address with one written before
// it: the kernel would refuse the second, or give it some of the connections. It
// returns nil if there are too many to look at.
func overlaps(r *report, all []listen) *claims {
	slices.SortStableFunc(all, func(a, b listen) int {
		return cmp.Or(a.at.order-b.at.order, a.at.line-b.at.line, a.at.column-b.at.column)
	})
	c := &claims{all: all, first: map[place]int{}}
	total := 0
	for i, l := range all {
		if total += int(l.hi-l.lo) + 1; total > maxListeners {
			r.add(l.at, l.path, "with it there are more than %d listeners, ranges expanded; listen on fewer ports", maxListeners)
			return nil
		}
		first := -1
		for port := int(l.lo); port <= int(l.hi); port++ {
			if j := c.inTheWay(l, uint16(port)); j >= 0 && (first < 0 || j < first) {
				first = j
			}
		}
		if first >= 0 {
			before := all[first]
			r.add(l.at, l.path, "%s overlaps %s of %s at %s; give them different addresses or ports",
				quote(l.text), quote(before.text), before.path, before.at)
		}
		for port := int(l.lo); port <= int(l.hi); port++ {
			c.claim(l, i, uint16(port))
		}
	}
	return c
}
