package config

import (
	"slices"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// This file refuses keys that could have no effect beside what others say. Only what
// an object gives itself is looked at: what it inherits was written for all, and one
// object need not use all of it. A value that turns something off is no such key
// either; it is how what is inherited is turned off.

// idle refuses those of the keys that the object itself gives. The causes are the
// keys that leave them without effect, why says how, and right what would give them one.
func (o *object) idle(keys, causes []string, why, right string) {
	for _, k := range keys {
		if o.gives(k) {
			o.problem(append([]string{k}, causes...), "has no effect %s; %s, or remove it", why, right)
		}
	}
}

func (s *service) finishEffects() {
	if s.protocol == l4.TCP && s.tcp.Keepalive.Probes == 0 {
		s.idle([]string{"keepalive.idle", "keepalive.interval"}, []string{"keepalive.probes"},
			"with probes: 0, which turns keepalive off", "set probes")
	}
	everywhere := len(s.listen) > 0
	for _, l := range s.listen {
		everywhere = everywhere && (l.dual || l.addr.IsUnspecified())
	}
	if everywhere && (s.tcp.Freebind || s.udp.Freebind) {
		s.idle([]string{"freebind"}, []string{"listen"}, "on listeners of every address, which this host always has", `listen on an address, such as "10.0.0.100:5432"`)
	}
}

func (p *pool) finishEffects() {
	limited, backups, allLimited := p.Discovery.File != "", p.Discovery.File != "", p.Discovery.File == ""
	for i, b := range p.backends {
		own := b.MaxConnections != inherit
		limited = limited || own && b.MaxConnections > 0 || !own && p.maxConnections > 0
		allLimited = allLimited && own
		backups = backups || b.Backup || b.name.SRV // by priority
		if b.weighed && b.Weight > 0 && p.gives("backends") && p.Balance.AB == nil && balance.Named(p.Balance.Algorithm).InOrder {
			p.add(b.at, index(join(p.path, "backends"), i)+".weight",
				"has no effect with balance: %s, which goes by the order of the list; use another balance, or remove it", p.told("balance", p.Balance.Algorithm))
		}
	}
	if p.Balance.Queue.Size > 0 && !limited {
		p.idle([]string{"queue.size", "queue.timeout"}, []string{"max_connections", "backends"},
			"without a limit that clients could wait for", "set max_connections")
	}
	if p.maxConnections > 0 && allLimited && len(p.backends) > 0 {
		p.idle([]string{"max_connections"}, []string{"backends"}, "as every backend has its own", "leave it out at a backend")
	}
	if p.CloseBackupOnRecovery && !backups {
		p.idle([]string{"close_backup_on_recovery"}, []string{"backends"}, "without backups", "mark a backend with backup: true")
	}
	unchecked, passive := p.Check.Type == "none", []string{"passive.failures"}
	if unchecked {
		p.idle([]string{"check.interval", "check.fast_interval", "check.down_interval", "check.timeout", "check.rise", "check.fall", "check.port"},
			[]string{"check.type"}, "with type: none, which asks nothing", "set a type")
		if p.OnDownClose {
			p.idle([]string{"on_down"}, []string{"check.type"}, "without a check that could find a backend down", "set check.type")
		}
	}
	if p.Passive.Failures == 0 {
		p.idle([]string{"passive.base", "passive.max", "passive.max_percent", "passive.half_open"}, passive,
			"with failures: 0, which turns passive checks off", "set failures")
		if unchecked && p.Balance.Panic > 0 {
			p.idle([]string{"panic"}, append(passive, "check.type"), "without checks, active or passive, that could find backends unhealthy", "set check.type or passive.failures")
		}
	}
}

// use is what the services do with a pool.
type use struct {
	tcp, udp string // a service of that protocol
	retries  bool   // something of one of them is tried again, or may be
}

// finishUses refuses what a pool gives and none of the services that use it can use.
// Of a pool without services nothing is said.
func finishUses(services []*service, pools []*pool) {
	uses := map[string]*use{}
	for _, s := range services {
		for _, name := range s.Pools() {
			u := uses[name]
			if u == nil {
				u = &use{}
				uses[name] = u
			}
			if s.protocol == l4.UDP {
				u.udp = s.Name
			} else {
				u.tcp = s.Name
			}
			u.retries = u.retries || s.tcp.Retries > 0 || s.udp.Retry || slices.ContainsFunc(
				[]string{"protocol", "retries", "udp.replies", "udp.retry", "udp.spray"}, s.refused)
		}
	}
	for _, p := range pools {
		u := uses[p.Balance.Name]
		if u != nil && u.tcp == "" {
			p.finishDatagrams(u.udp)
		}
		if u != nil && !u.retries {
			p.finishNoRetries(*u)
		}
	}
}

// finishDatagrams is for pools that UDP alone uses. It also refuses the
// default check, which says nothing about what such a pool is for.
func (p *pool) finishDatagrams(service string) {
	if p.Check.Type == "tcp" && !p.has("check.type") {
		p.problem([]string{"check", "check.type"}, "would ask over TCP, and service %s uses the pool with protocol: udp; write check: {type: udp, dns, exec or none}, or type: tcp if that is meant", service)
	}
	if p.Balance.Queue.Size > 0 {
		p.idle([]string{"queue.size", "queue.timeout"}, nil, "on datagrams, which do not wait, and service "+service+" with protocol: udp uses the pool", "give that a pool of its own")
	}
}

// finishNoRetries is for pools whose services try one backend only.
func (p *pool) finishNoRetries(u use) {
	why, right := "where no other backend is tried, and service "+u.tcp+" uses the pool with retries: 0", "raise retries there"
	if u.tcp == "" {
		why = "where no datagram is sent to another backend, and service " + u.udp + " with protocol: udp uses the pool without udp.retry"
		right = "write udp: {replies: 1, retry: true} there"
	}
	p.idle([]string{"retry_budget.percent", "retry_budget.floor"}, nil, why, right)
	if p.Replay > 0 && u.tcp != "" {
		p.idle([]string{"replay"}, nil, why, right)
	}
}
