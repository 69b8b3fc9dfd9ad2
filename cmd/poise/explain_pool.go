package main

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4/balance"
)

// pool says what its backends are and what they see; streams is whether there are
// connections among it, not only datagrams.
func (e *explanation) pool(p config.Pool, streams bool) {
	e.title("pool", p.Balance.Name)
	choice := p.Balance.Algorithm
	if ab := p.Balance.AB; ab != nil {
		choice = fmt.Sprintf("%s for %s %% and %s for the rest", ab.A, number(100*ab.Split), ab.B)
	}
	e.line("balance", "%s", choice)
	e.backends(p)
	e.check(p.Check)
	e.passive(p, streams)
	e.shares(p.Balance, streams)
	switch {
	case p.Transparent:
		e.line("source", "the client's own address; takes CAP_NET_ADMIN and the rules below")
	case p.Source.IsValid():
		e.line("source", "%s", p.Source)
	}
	if p.SendProxy != "" {
		version := map[string]string{"v1": "version 1", "v2": "version 2", "v2-each": "version 2, in each datagram"}[p.SendProxy]
		if p.UDP && p.SendProxy == "v2" {
			version += ", of UDP in the first datagram of each session"
		}
		e.line("PROXY out", "%s", version)
	}
	if t := p.TLS; t != nil {
		start, name, verified := "", "named as their addresses", "not verified"
		if p.StartTLS {
			start = "after PostgreSQL's SSLRequest, "
		}
		if t.ServerName != "" {
			name = "named " + t.ServerName
		}
		if t.Verify {
			verified = "verified by " + cmp.Or(t.CA, "the system's authorities")
		}
		e.line("TLS", "%s%s or later, %s, %s%s", start, tls.VersionName(t.MinVersion), name, verified, agreed(t.ALPN))
	}
	if streams && e.on("replay", p.Replay > 0) {
		e.line("replay", "up to %s of the client to another backend, if one ends before it answers", plural.Of(p.Replay, "byte"))
	}
	e.end()
}

// check says what is asked of backends, and when their state changes.
func (e *explanation) check(c health.Spec) {
	if c.Type == "none" {
		e.line("check", "none")
		return
	}
	all := c.All
	if c.Type != health.AllOf {
		all = []health.Spec{c}
	}
	var asked []string
	for _, q := range all {
		what := q.Type
		if q.Port != 0 {
			what += fmt.Sprintf(" on port %d", q.Port)
		}
		asked = append(asked, what)
	}
	e.line("check", "%s every %s, %s when the state may change, %s while down; each within %s",
		strings.Join(asked, " and "), config.Written(c.Interval), config.Written(cmp.Or(c.FastInterval, c.Interval)),
		config.Written(cmp.Or(c.DownInterval, c.Interval)), config.Written(c.Timeout))
	first := "up"
	if !c.InitiallyUp() {
		first = "down"
	}
	e.line("", "down after %s, up after %d passed, %s before the first verdict", plural.Of(c.Fall, "failure"), c.Rise, first)
}

// passive says what of clients' traffic ejects a backend.
func (e *explanation) passive(p config.Pool, streams bool) {
	o := p.Passive
	if !e.on("passive.failures", o.Failures > 0) {
		return
	}
	e.line("passive check", "out for %s after %s in a row, each time twice as long, up to %s",
		config.Written(o.Base), plural.Of(o.Failures, "failure"), config.Written(o.Max))
	e.line("", "at most %d %% of the backends at once; at the end %s", o.MaxPercent, plural.Of(o.HalfOpen, "trial"))
	var counts []string
	if streams {
		counts = append(counts, "failed connects")
		if p.TLS != nil {
			counts = append(counts, "failed TLS")
		}
		counts = append(counts, "resets and timeouts before the first byte", "vanished hosts")
	}
	if p.UDP {
		counts = append(counts, "a UDP port where nothing listens")
	}
	e.line("", "counts: %s", strings.Join(counts, ", "))
	if !streams {
		return
	}
	if o.Checked {
		e.line("", "what a client may have caused: only from three sources or more")
	} else {
		e.line("", "what a client may have caused: in full, as there is no check")
	}
}

// shares says who gets how much, and when. Datagrams do not queue.
func (e *explanation) shares(b balance.Spec, streams bool) {
	if streams && e.on("queue", b.Queue.Size > 0) {
		e.line("queue", "%s, each for up to %s, when all backends are full", plural.Of(b.Queue.Size, "client"), config.Written(b.Queue.Timeout))
	}
	if e.on("sticky", b.Sticky != nil) {
		e.line("sticky", "a source keeps its backend for %s after its last connection; %s at most",
			config.Written(b.Sticky.TTL), plural.Of(b.Sticky.Size, "source"))
	}
	if e.on("slow_start", b.SlowStart > 0) {
		e.line("slow start", "%s until a backend that is new or back has its full share", config.Written(b.SlowStart))
	}
	if e.on("panic", b.Panic > 0) {
		e.line("panic", "if fewer than %d %% of the backends are healthy, all are used", b.Panic)
	}
	e.line("retry budget", "%d %% of the new connections, and %d a second", b.Retry.Percent, b.Retry.Floor)
}

// backends says where they are, what they are called and what each may get.
func (e *explanation) backends(p config.Pool) {
	names, label := p.Discovery.Names, "backends"
	limited := p.Discovery.MaxConnections > 0 ||
		slices.ContainsFunc(p.Balance.Backends, func(b balance.BackendSpec) bool { return b.MaxConnections > 0 }) ||
		slices.ContainsFunc(names, func(n config.Name) bool { return n.MaxConnections > 0 })
	limited = e.on("max_connections", limited)
	limit := func(n int) string {
		switch {
		case n > 0:
			return fmt.Sprintf(", at most %d at once", n)
		case limited:
			return ", no limit"
		}
		return ""
	}
	backend := func(name, where string, weight int, backup bool, connections int) {
		if name != "" {
			name += ": "
		}
		share := ""
		if weight >= 0 {
			share = fmt.Sprintf(", weight %d", weight)
		}
		if backup {
			share += ", backup"
		}
		e.line(label, "%s%s%s%s", name, where, share, limit(connections))
		label = ""
	}
	for _, b := range p.Balance.Backends {
		name := b.Name
		if name == b.Addr.String() {
			name = ""
		}
		backend(name, b.Addr.String(), b.Weight, b.Backup, b.MaxConnections)
	}
	for _, n := range names {
		name, weight, where := n.Name, n.Weight, fmt.Sprintf("by the addresses of %s, port %d", n.Host, n.Port)
		if n.SRV {
			weight, where = -1, "by the SRV records of "+n.Host // which say the weights
		}
		if name == n.Host {
			name = ""
		}
		backend(name, where, weight, n.Backup, n.MaxConnections)
	}
	if p.Discovery.File != "" {
		e.line(label, "by the list in %s%s", p.Discovery.File, limit(p.Discovery.MaxConnections))
	}
	if len(names) > 0 {
		e.lookups(p.Discovery.Resolve)
	}
}

// lookups says how names are looked up.
func (e *explanation) lookups(r config.Resolve) {
	servers := "the host's name servers"
	if len(r.Servers) > 0 {
		servers = "name servers"
		for _, s := range r.Servers {
			servers += " " + s.String()
		}
	}
	e.line("names", "asked of %s, every %s to %s", servers, config.Written(r.MinTTL), config.Written(r.MaxTTL))
	if e.on("resolve.hold", r.Hold > 0) {
		e.line("", "members stay for %s after a name has none", config.Written(r.Hold))
	}
}
