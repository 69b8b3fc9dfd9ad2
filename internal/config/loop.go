package config

import (
	"net/netip"

	"github.com/poise-lb/poise/l4"
)

// A hop is a backend that is a service itself: what is forwarded to it arrives there.
type hop struct {
	pool    *pool
	backend int
	listen  listen // of the service
}

// loops reports every backend by which a service is its own client, perhaps by way
// of others: each connection would make another, each datagram be sent again, until
// something runs out. A service as the backend of another is fine. Only addresses
// that are written in the configuration can be told.
//
// What leads where is a graph of services and pools, a pool for each of the two
// protocols: a pool that many services share is looked at once.
func loops(services []*service, pools poolsByName, c *claims) {
	if c == nil {
		return
	}
	number := make(map[*service]int, len(services)) // services first, then two nodes a pool
	for i, s := range services {
		number[s] = i
	}
	nodes := map[string][2]int{}
	for i, p := range pools.sorted {
		nodes[p.Balance.Name] = [2]int{len(services) + 2*i, len(services) + 2*i + 1}
	}
	next := make([][]int, len(services)+2*len(pools.sorted))
	users := make([][]*service, len(next)) // of a pool's node
	for i, s := range services {
		for _, name := range s.Pools() {
			if pools.of[name] == nil {
				continue // reported as such
			}
			to := nodes[name][protocolIndex(s)]
			next[i] = append(next[i], to)
			users[to] = append(users[to], s)
		}
	}
	hops := make([][]hop, len(next))
	for _, p := range pools.sorted {
		for protocol, node := range nodes[p.Balance.Name] {
			if users[node] == nil {
				continue
			}
			for i, b := range p.backends {
				if l, ok := arrives(c, b, protocol == 1); ok && l.service != nil {
					hops[node] = append(hops[node], hop{p, i, l})
					next[node] = append(next[node], number[l.service])
				}
			}
		}
	}
	round := circles(next)
	for node, all := range hops {
		uses := make(map[*service]bool, len(users[node]))
		var from *service // in the circle, the first by name
		for _, s := range users[node] {
			uses[s] = true
			if from == nil && round[number[s]] == round[node] {
				from = s
			}
		}
		for _, h := range all {
			to := h.listen.service
			switch {
			case round[number[to]] != round[node]:
			case uses[to]:
				h.report(to)
			default:
				h.report(from)
			}
		}
	}
}

func protocolIndex(s *service) int {
	if s.protocol == l4.UDP {
		return 1
	}
	return 0
}

// report says that h is part of a loop that from is on.
func (h hop) report(from *service) {
	b, to := h.pool.backends[h.backend], h.listen.service
	address, key := b.shown(), index(join(h.pool.path, "backends"), h.backend)
	if from == to {
		h.pool.add(b.at, key, "%s is where service %s itself listens, with %s at %s: what it forwards would come back to it without end; write the address of the server that is meant, or let the service listen on another address or port",
			address, to.Name, quote(h.listen.text), h.listen.at)
		return
	}
	h.pool.add(b.at, key, "%s is where service %s listens, with %s at %s, whose own backends lead back to service %s: what that forwards would come back to it without end; write the address of the server that is meant",
		address, to.Name, quote(h.listen.text), h.listen.at, from.Name)
}

// circles gives nodes the same number if each leads to the other (strongly connected
// components, R. Tarjan 1972). next is where each node leads.
func circles(next [][]int) []int {
	order, low, circle := make([]int, len(next)), make([]int, len(next)), make([]int, len(next))
	seen := 0
	var open []int // visited, and without a circle yet
	var visit func(n int)
	visit = func(n int) {
		seen++
		order[n], low[n] = seen, seen
		open = append(open, n)
		for _, to := range next[n] {
			if order[to] == 0 {
				visit(to)
			}
			if circle[to] == 0 {
				low[n] = min(low[n], low[to])
			}
		}
		for low[n] == order[n] && circle[n] == 0 {
			last := len(open) - 1
			circle[open[last]] = order[n]
			open = open[:last]
		}
	}
	for n := range next {
		if order[n] == 0 {
			visit(n)
		}
	}
	return circle
}

// arrives returns the listener at a backend's address.
func arrives(c *claims, b backend, udp bool) (listen, bool) {
	if b.name.Host == "localhost" && !b.name.SRV { // RFC 6761, section 6.3
		if l, ok := c.receiving(udp, netip.IPv6Loopback(), b.name.Port); ok {
			return l, ok
		}
		return c.receiving(udp, netip.AddrFrom4([4]byte{127, 0, 0, 1}), b.name.Port)
	}
	return c.receiving(udp, b.Addr.Addr(), b.Addr.Port())
}
