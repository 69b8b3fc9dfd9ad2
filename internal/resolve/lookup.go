package resolve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of what one name may lead to.
const (
	maxMembers = 1000
	maxTargets = 100 // of an SRV lookup; each takes two queries
	atOnce     = 8   // of them
)

// lookup finds out once what there is to know about a name.
func (c *client) lookup(ctx context.Context, t Target) answer {
	servers, system := t.Servers, len(t.Servers) == 0
	if system {
		var err error
		if servers, err = c.system.servers(); err != nil {
			return failed(err)
		}
	}
	var a answer
	if t.Kind == SRV {
		a = c.services(ctx, servers, t.Name, system)
	} else {
		a = c.host(ctx, servers, t.Name, system)
	}
	n := 0
	for _, p := range a.parts {
		n += len(p.members)
	}
	if n > maxMembers {
		return failed(fmt.Errorf("%s leads to %d addresses; at most %d are used", t.Name, n, maxMembers))
	}
	return a
}

// host asks for both kinds of addresses at once.
func (c *client) host(ctx context.Context, servers []netip.AddrPort, name string, system bool) answer {
	if system {
		if addrs := c.system.hosts(name); len(addrs) > 0 {
			return answer{parts: []part{{key: "hosts", members: asMembers(addrs)}}, ttl: hostsTTL}
		}
	}
	types := []uint16{dns.TypeA, dns.TypeAAAA}
	parts := make([]part, len(types))
	ttls := make([]time.Duration, len(types))
	var asking sync.WaitGroup
	for i, qtype := range types {
		asking.Go(func() {
			parts[i].key = dns.TypeToString[qtype]
			m, err := c.exchange(ctx, servers, name, qtype)
			if err != nil {
				parts[i].err = err
				return
			}
			var addrs []netip.Addr
			addrs, ttls[i] = addresses(m, qtype)
			if parts[i].members = asMembers(addrs); len(addrs) == 0 {
				parts[i].err = fmt.Errorf("%s %s: no usable address", dns.TypeToString[qtype], name)
			}
		})
	}
	asking.Wait()
	return joined(parts, ttls)
}

// joined makes one answer of what was found about a name by its types.
//
// NXDOMAIN means that nothing of any type exists (RFC 8020), and there are many
// servers that say it of a name that has records of the other type (RFC 4074 section
// 4.2). So it removes no address: neither one that was found, nor one that is known
// from before and could not be asked for now.
func joined(parts []part, ttls []time.Duration) answer {
	var a answer
	var negatives []*negative
	found, denied := false, false
	for i, p := range parts {
		n := (*negative)(nil)
		switch {
		case errors.As(p.err, &n):
			negatives = append(negatives, n)
			denied = denied || n.nxdomain
			p.err = nil
		case p.err == nil && (!found || ttls[i] < a.ttl):
			a.ttl, found = ttls[i], true
		}
		a.parts = append(a.parts, p)
	}
	for i, n := range negatives {
		if !found && (i == 0 || n.ttl < a.ttl) {
			a.ttl = n.ttl
		}
		if i == 0 {
			a.empty = n.why
		}
	}
	for i := range a.parts {
		a.parts[i].denied = denied
	}
	return a
}

// addresses returns the usable addresses of an answer and the least TTL of its
// records.
func addresses(m *dns.Msg, qtype uint16) (addrs []netip.Addr, ttl time.Duration) {
	for i, rr := range chain(m, qtype) {
		if d := seconds(rr.Header().Ttl); i == 0 || d < ttl {
			ttl = d
		}
		var a netip.Addr
		switch rr := rr.(type) {
		case *dns.A:
			a, _ = netip.AddrFromSlice(rr.A)
		case *dns.AAAA:
			a, _ = netip.AddrFromSlice(rr.AAAA)
		}
		if a = a.Unmap(); usable(a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, ttl
}

// usable reports whether an address can be that of one backend. Filtering servers
// answer 0.0.0.0 for what they do not like.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && a.Zone() == ""
}

func asMembers(addrs []netip.Addr) (members []Member) {
	for _, a := range addrs {
		members = append(members, Member{Addr: a})
	}
	return members
}

// services asks for the SRV records and for the addresses of each target.
func (c *client) services(ctx context.Context, servers []netip.AddrPort, name string, system bool) answer {
	m, err := c.exchange(ctx, servers, name, dns.TypeSRV)
	if n := (*negative)(nil); errors.As(err, &n) {
		return answer{empty: n.why, ttl: n.ttl}
	}
	if err != nil {
		return failed(err)
	}
	var records []*dns.SRV
	a := answer{empty: fmt.Sprintf("SRV %s: no target has an address", name)}
	for i, rr := range chain(m, dns.TypeSRV) {
		srv, ok := rr.(*dns.SRV)
		if d := seconds(rr.Header().Ttl); i == 0 || d < a.ttl {
			a.ttl = d
		}
		// RFC 2782: the target "." means that the service is decidedly not there.
		if ok && srv.Target != "." && srv.Port != 0 {
			records = append(records, srv)
		}
	}
	switch {
	case len(records) == 0:
		a.empty = fmt.Sprintf("SRV %s: the service is not available", name)
		return a
	case len(records) > maxTargets:
		return failed(fmt.Errorf("SRV %s: %d targets; at most %d are used", name, len(records), maxTargets))
	}
	targets := c.targets(ctx, servers, records, system)
	for _, srv := range records {
		t := targets[srv.Target]
		a.ttl = min(a.ttl, t.ttl)
		for _, p := range t.parts {
			p.key = fmt.Sprintf("%s %s %d %d %d", p.key, srv.Target, srv.Port, srv.Weight, srv.Priority)
			placed := make([]Member, len(p.members)) // another record may have the same target
			for i, at := range p.members {
				placed[i] = Member{Addr: at.Addr, Port: srv.Port, Weight: srv.Weight, Priority: srv.Priority}
			}
			p.members = placed
			a.parts = append(a.parts, p)
		}
	}
	return a
}

// targets looks the targets of SRV records up, each once and few at once.
func (c *client) targets(ctx context.Context, servers []netip.AddrPort, records []*dns.SRV, system bool) map[string]answer {
	var mu sync.Mutex // guards found
	found := map[string]answer{}
	slots := make(chan struct{}, atOnce)
	var asking sync.WaitGroup
	asked := map[string]bool{}
	for _, srv := range records {
		if asked[srv.Target] {
			continue
		}
		asked[srv.Target] = true
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			a := c.host(ctx, servers, strings.TrimSuffix(srv.Target, "."), system)
			mu.Lock()
			found[srv.Target] = a
			mu.Unlock()
		})
	}
	asking.Wait()
	return found
}
