package config

import (
	"net/netip"
	"slices"
)

// A hop leads from a service to one that a backend of its pools is: what the first
// forwards there arrives at the second.
type hop struct {
	from, to *service
	pool     *pool
	backend  int
	listen   listen
}

// loops reports every backend by which a service is its own client, perhaps by way
// of others: each connection would make another, each datagram be sent again, until
// something runs out. A service as the backend of another is fine.
//
// Only addresses that are written here can be told. Which those of this host are is
// not asked, so beside the very address of a listener it is those of loopback that
// lead to one for all addresses.
func loops(services []*service, pools []*pool) {
	byName, own := map[string]*pool{}, map[netip.Addr]bool{}
	for _, p := range pools {
		byName[p.Balance.Name] = p
	}
	for _, s := range services {
		for _, l := range s.listen {
			own[l.addr] = true
		}
	}
	hops := map[*service][]hop{}
	for _, s := range services {
		for _, name := range s.Pools() {
			p := byName[name]
			if p == nil {
				continue // reported as such
			}
			for i, b := range p.backends {
				if to, l, ok := listening(services, own, b, s.Protocol); ok {
					hops[s] = append(hops[s], hop{s, to, p, i, l})
				}
			}
		}
	}
	round := circles(services, hops)
	for _, s := range services {
		for _, h := range hops[s] {
			if round[h.from] == round[h.to] {
				h.report()
			}
		}
	}
}

// report says that h is part of a loop.
func (h hop) report() {
	b := h.pool.backends[h.backend]
	address, key := b.Addr.String(), index(join(h.pool.path, "backends"), h.backend)
	if b.name.Host != "" {
		address = b.name.Address()
	}
	if h.from == h.to {
		h.pool.add(b.at, key, "%s is where service %s itself listens, with %s at %s: what it forwards would come back to it without end; write the address of the server that is meant, or let the service listen on another address or port",
			address, h.from.Name, quote(h.listen.text), h.listen.at)
		return
	}
	h.pool.add(b.at, key, "%s is where service %s listens, with %s at %s, whose own backends lead back to service %s: what that forwards would come back to it without end; write the address of the server that is meant",
		address, h.to.Name, quote(h.listen.text), h.listen.at, h.from.Name)
}

// circles gives services the same number if each leads to the other (strongly
// connected components, R. Tarjan 1972).
func circles(services []*service, hops map[*service][]hop) map[*service]int {
	order, low, circle := map[*service]int{}, map[*service]int{}, map[*service]int{}
	var open []*service // visited, and without a circle yet
	var visit func(s *service)
	visit = func(s *service) {
		order[s] = len(order) + 1
		low[s] = order[s]
		open = append(open, s)
		for _, h := range hops[s] {
			if order[h.to] == 0 {
				visit(h.to)
			}
			if circle[h.to] == 0 {
				low[s] = min(low[s], low[h.to])
			}
		}
		for low[s] == order[s] && circle[s] == 0 {
			last := len(open) - 1
			circle[open[last]] = order[s]
			open = open[:last]
		}
	}
	for _, s := range services {
		if order[s] == 0 {
			visit(s)
		}
	}
	return circle
}

// listening returns the service at a backend's address, and the listener. own is the
// addresses of listeners: most backends are elsewhere, and soon done with.
func listening(services []*service, own map[netip.Addr]bool, b backend, protocol string) (*service, listen, bool) {
	addrs := []netip.Addr{b.Addr.Addr()}
	port := b.Addr.Port()
	if b.name.Host == "localhost" && !b.name.SRV { // RFC 6761, section 6.3
		addrs, port = []netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}, b.name.Port
	}
	if !own[addrs[0]] && !addrs[0].IsLoopback() {
		return nil, listen{}, false
	}
	for _, s := range services {
		if s.Protocol != protocol {
			continue
		}
		for _, l := range s.listen {
			if port >= l.lo && port <= l.hi && slices.ContainsFunc(addrs, l.receives) {
				return s, l, true
			}
		}
	}
	return nil, listen{}, false
}

// receives reports whether what this host sends to an address of its own, as far as
// that can be told, arrives here. The ports are not looked at.
func (l listen) receives(a netip.Addr) bool {
	switch {
	case !a.IsValid():
		return false
	case l.addr == a:
		return true
	case !l.addr.IsUnspecified() || !a.IsLoopback():
		return false
	}
	return l.dual || l.addr.Is4() == a.Is4()
}
