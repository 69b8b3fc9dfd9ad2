package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/balance"
)

// A Set is the pools of one configuration. It is immutable; a reload makes another one,
// in which what stays is the same object as before.
type Set struct {
	configured []config.Pool // as the configuration has them, before discovery
	pools      []*Pool       // by name
	leaving    []leavingPool
	members    map[*balance.Backend]*Member
	byKey      map[string]*Member
}

// A Pool is a configured pool, whose backends are those that it has now.
type Pool struct {
	config.Pool
	Live    *balance.Pool
	outlier *health.Outlier
	seen    *condition
}

// A Member is a backend of a configured pool. Its key is what monitor and outlier
// detector know it by: a renamed backend is the same server, and what was found
// out about it still holds.
type Member struct {
	*balance.Backend
	Pool *Pool
	key  string
}

// leavingPool is a pool that is configured no longer and still has connections.
type leavingPool struct {
	*balance.Pool
	since time.Time
}

// settling is how long a removed pool stays as it was: the listeners that are
// closing still take what is in their accept queues, and it is served.
const settling = time.Second

func memberKey(pool string, a balance.Address) string { return pool + "|" + a.String() }

// Pools returns the configured pools by name. The slice is shared: it must not be changed.
func (s *Set) Pools() []*Pool { return s.pools }

// Pool returns the configured pool of that name, or nil.
func (s *Set) Pool(name string) *Pool {
	for _, p := range s.pools {
		if p.Balance.Name == name {
			return p
		}
	}
	return nil
}

// Member returns the member that b is, or nil if its pool or b itself is leaving.
func (s *Set) Member(b *balance.Backend) *Member { return s.members[b] }

// All returns the configured pools and those that leave, by name.
func (s *Set) All() []*balance.Pool {
	list := make([]*balance.Pool, 0, len(s.pools)+len(s.leaving))
	for _, p := range s.pools {
		list = append(list, p.Live)
	}
	for _, p := range s.leaving {
		list = append(list, p.Pool)
	}
	slices.SortFunc(list, func(a, b *balance.Pool) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

// index finds the backends that the pools have now.
func (s *Set) index() {
	s.members = map[*balance.Backend]*Member{}
	s.byKey = map[string]*Member{}
	for _, p := range s.pools {
		for _, b := range p.Live.Backends() {
			m := &Member{b, p, memberKey(b.PoolName(), b.Addr())}
			s.members[b], s.byKey[m.key] = m, m
		}
	}
}

// keys lists the members of p.
func (p *Pool) keys() (keys []string) {
	for _, b := range p.Balance.Backends {
		keys = append(keys, memberKey(p.Balance.Name, b.Addr))
	}
	return keys
}

// with is p with other backends.
func (p *Pool) with(backends []balance.BackendSpec) *Pool {
	q := *p
	q.Balance.Backends = backends
	return &q
}

// targets lists what the monitor has to check.
func (s *Set) targets() (targets []health.Target) {
	for _, p := range s.pools {
		for _, b := range p.Balance.Backends {
			targets = append(targets, health.Target{
				Key:     memberKey(p.Balance.Name, b.Addr),
				Network: b.Addr.Network(),
				Address: b.Addr.Dial(),
				Spec:    p.Check,
			})
		}
	}
	return targets
}
