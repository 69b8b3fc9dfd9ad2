package daemon

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/cert"
)

// A generation is what one configuration consists of. It is immutable; a reload
// makes another one, in which what stays is the same object as before.
type generation struct {
	file     *config.File
	services []*service // by name
	pools    []*pool    // by name
	leaving  []leavingPool
	members  map[*balance.Backend]*member
	byKey    map[string]*member
}

// pool is a configured pool.
type pool struct {
	config.Pool
	balance *balance.Pool
	outlier *health.Outlier
	mood    *mood
	tls     *cert.Client // towards the backends; nil = none
}

// member is a backend of a configured pool. Its key is what monitor and outlier
// detector know it by: a renamed backend is the same server, and what was found
// out about it still holds.
type member struct {
	*balance.Backend
	pool *pool
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

// pool returns the configured pool of that name, or nil.
func (g *generation) pool(name string) *pool {
	for _, p := range g.pools {
		if p.Balance.Name == name {
			return p
		}
	}
	return nil
}

// balancePools returns the configured pools and those that leave, by name.
func (g *generation) balancePools() []*balance.Pool {
	list := make([]*balance.Pool, 0, len(g.pools)+len(g.leaving))
	for _, p := range g.pools {
		list = append(list, p.balance)
	}
	for _, p := range g.leaving {
		list = append(list, p.Pool)
	}
	slices.SortFunc(list, func(a, b *balance.Pool) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

// stillLeaving empties the leaving pools that have settled and returns those that
// are not done yet.
func (g *generation) stillLeaving(now time.Time) (left []leavingPool) {
	for _, p := range g.leaving {
		settled := now.Sub(p.since) >= settling
		if spec := p.Spec(); settled && len(spec.Backends) > 0 {
			spec.Backends = nil
			p.Update(spec)
		}
		if !settled || len(p.Leaving()) > 0 {
			left = append(left, p)
		}
	}
	return left
}

// index finds the backends that the pools have now.
func (g *generation) index() {
	g.members = map[*balance.Backend]*member{}
	g.byKey = map[string]*member{}
	for _, p := range g.pools {
		for _, b := range p.balance.Backends() {
			m := &member{b, p, memberKey(b.PoolName(), b.Addr())}
			g.members[b], g.byKey[m.key] = m, m
		}
	}
}

// keys lists the members of p.
func (p *pool) keys() (keys []string) {
	for _, b := range p.Balance.Backends {
		keys = append(keys, memberKey(p.Balance.Name, b.Addr))
	}
	return keys
}

// targets lists what the monitor has to check.
func (g *generation) targets() (targets []health.Target) {
	for _, p := range g.pools {
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

// connected tells the outlier detector how a connect ended. It runs on a loop.
func (d *Daemon) connected(b *balance.Backend, r l4.ConnectReason) {
	if r.Local() {
		return // says nothing about the backend
	}
	if m := d.generation.Load().members[b]; m != nil {
		m.pool.outlier.Connected(m.key, r == l4.ConnectOK)
	}
}

// began tells it of a session of UDP: it has reached its backend, as far as that can
// be known. It runs on a loop.
func (d *Daemon) began(b *balance.Backend) { d.connected(b, l4.ConnectOK) }

// fared tells it how an established connection fared. It runs on a loop.
func (d *Daemon) fared(b *balance.Backend, e l4.Evidence, client netip.Addr) {
	m := d.generation.Load().members[b]
	switch {
	case m == nil:
	case e == l4.Doubtful:
		m.pool.outlier.Doubted(m.key, client)
	default:
		m.pool.outlier.Answered(m.key, e == l4.Answered)
	}
}

// answered tells it of a reply from a UDP backend. It runs on a loop.
func (d *Daemon) answered(b *balance.Backend, ok bool) {
	if m := d.generation.Load().members[b]; m != nil {
		m.pool.outlier.Answered(m.key, ok)
	}
}

// refused tells it of an ICMP error that came back from a UDP backend: no client can
// bring that about, unless the backend sees its address. It runs on a loop.
func (d *Daemon) refused(b *balance.Backend) {
	m := d.generation.Load().members[b]
	if m == nil || m.pool.Transparent && m.pool.Passive.Checked {
		return // a firewall may refuse one client, whose address need not even be its own
	}
	m.pool.outlier.Answered(m.key, false)
}

// ended logs a connection that is over. It runs on a loop.
func (d *Daemon) ended(s *l4.Session) { d.access.Record(s) }
