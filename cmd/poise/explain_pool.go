package main

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4/balance"
)

// uses are how the services of a file use a pool.
type uses struct {
	streams bool // there are connections among it, not only datagrams
	keeps   bool // a client keeps its backend for a while, as all do but those of spray
	retries bool // some of it is tried again
}

// pool says what its backends are and what they see.
func (e *explanation) pool(p config.Pool, by uses) {
	e.title("pool", p.Balance.Name)
	e.balance(p.Balance)
	e.backends(p)
	e.check(p.Check)
	e.passive(p, by.streams)
	if by.keeps {
		e.ends(p)
	}
	e.shares(p.Balance, by)
	switch {
	case p.Transparent:
		e.line("source", "%s", e.of("source", "the client's own address; takes CAP_NET_ADMIN and the rules below"))
	case p.Source.IsValid():
		e.line("source", "%s", e.of("source", p.Source.String()))
	}
	e.header(p, by.streams)
	e.encryption(p)
	if by.streams && e.on("replay", p.Replay > 0) {
		e.line("replay", "up to %s of the client to another backend, if one ends before it answers", e.counted("replay", p.Replay, "byte"))
	}
	e.end()
}

// balance says how a backend is chosen.
func (e *explanation) balance(b balance.Spec) {
	if ab := b.AB; ab != nil {
		a, other := e.of("ab.a", ab.A), e.of("ab.b", ab.B)
		if e.hides("ab.split") {
			e.line("balance", "%s for %s of the connections and %s for the rest", a, e.of("ab.split", ""), other)
		} else {
			e.line("balance", "%s for %s %% and %s for the rest", a, number(100*ab.Split), other)
		}
	} else {
		e.line("balance", "%s", e.of("balance", b.Algorithm))
	}
	if !b.ByHash() {
		return
	}
	chosen := "by the client's address"
	if b.Hash.Port {
		chosen = "by the client's address and port"
	}
	e.line("", "%s, of which %s bits count in IPv4 and %s in IPv6", e.of("hash.key", chosen),
		e.of("hash.mask4", strconv.Itoa(cmp.Or(b.Hash.Mask4, 32))), e.of("hash.mask6", strconv.Itoa(cmp.Or(b.Hash.Mask6, 128))))
	if b.Seed != 0 {
		e.line("", "seeded by cluster.secret: a stranger cannot tell which address leads where")
	}
	if e.on("hash.bound", b.Hash.Bound > 0) {
		e.line("", "up to %s times a backend's fair share; what is beyond goes to others", e.of("hash.bound", number(b.Hash.Bound)))
	}
}

// ends says what becomes of what is open to a backend that is no longer to be used.
func (e *explanation) ends(p config.Pool) {
	label := "open clients"
	say := func(key, when, what string) {
		e.line(label, "%s %s", when, e.of(key, what))
		label = ""
	}
	if p.Check.Type != "none" {
		what := "stay with it"
		if p.OnDownClose {
			what = "are closed, spread over one check interval and 10s at most"
		}
		say("on_down", "of a backend that its check finds down:", what)
	}
	what := "stay with it"
	switch r := p.OnRemove; {
	case r.Close && r.After > 0:
		what = fmt.Sprintf("may go on for %s, then are closed", config.Written(r.After))
	case r.Close:
		what = "are closed at once"
	}
	say("on_remove", "of a backend that is removed:", what)
	backup := p.Discovery.File != "" || // which may list some
		slices.ContainsFunc(p.Balance.Backends, func(b balance.BackendSpec) bool { return b.Backup }) ||
		slices.ContainsFunc(p.Discovery.Names, func(n config.Name) bool { return n.Backup || n.SRV })
	if backup {
		what = "stay with it"
		if p.CloseBackupOnRecovery {
			what = "are closed"
		}
		say("close_backup_on_recovery", "of a backup, once another backend can be used again:", what)
	}
}

// header says what backends are told of a client before its first byte.
func (e *explanation) header(p config.Pool, streams bool) {
	if p.SendProxy == "" {
		return
	}
	version := map[string]string{"v1": "version 1", "v2": "version 2", "v2-each": "version 2, in each datagram"}[p.SendProxy]
	if p.UDP && p.SendProxy == "v2" {
		version += ", of UDP in the first datagram of each session"
	}
	e.line("PROXY out", "%s", e.of("send_proxy", version))
	if p.SendProxy == "v1" && !e.hides("send_proxy") {
		return
	}
	var fields []string
	for _, f := range []struct {
		key, name string
		on        bool
	}{
		{"authority", "the server name", p.ProxyTLVs.Authority},
		{"alpn", "the agreed protocol", p.ProxyTLVs.ALPN},
		{"ssl", "the client's TLS and certificate", p.ProxyTLVs.SSL},
		{"unique_id", "a number of the connection", p.ProxyTLVs.UniqueID},
	} {
		if streams && e.on("proxy_tlvs."+f.key, f.on) {
			fields = append(fields, f.name)
		}
	}
	for _, f := range p.ProxyTLVs.Custom {
		fields = append(fields, fmt.Sprintf("field 0x%X of %s", f.Type, plural.Of(len(f.Value), "byte")))
	}
	if len(fields) > 0 {
		e.line("", "with the addresses, and where it is known: %s", strings.Join(fields, ", "))
	}
}

// encryption says what TLS with the backends is like.
func (e *explanation) encryption(p config.Pool) {
	t := p.TLS
	if t == nil {
		return
	}
	start, name, verified := "", "named as their addresses", e.of("tls.verify", "not verified")
	if p.StartTLS {
		start = e.of("tls.starttls", "after PostgreSQL's SSLRequest") + ", "
	}
	if t.ServerName != "" {
		name = "named " + e.of("tls.server_name", t.ServerName)
	}
	if t.Verify {
		verified = "verified by " + e.of("tls.ca", cmp.Or(t.CA, "the system's authorities"))
	}
	e.line("TLS", "%s%s or later, %s, %s%s", start, e.of("tls.min_version", tls.VersionName(t.MinVersion)), name, verified, agreed(e.items("tls.alpn", t.ALPN)))
	if t.Cert != "" {
		e.line("", "with our certificate %s, key %s", e.of("tls.cert", t.Cert), e.of("tls.key", t.Key))
	}
}

// passive says what of clients' traffic ejects a backend.
func (e *explanation) passive(p config.Pool, streams bool) {
	o := p.Passive
	if !e.on("passive.failures", o.Failures > 0) {
		return
	}
	e.line("passive check", "out for %s after %s in a row, each time twice as long, up to %s",
		e.of("passive.base", config.Written(o.Base)), e.counted("passive.failures", o.Failures, "failure"), e.of("passive.max", config.Written(o.Max)))
	e.line("", "at most %s %% of the backends at once; at the end %s",
		e.of("passive.max_percent", strconv.Itoa(o.MaxPercent)), e.counted("passive.half_open", o.HalfOpen, "trial"))
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
		e.line("", "what a client may have caused counts if it comes from three sources or more")
	} else {
		e.line("", "what a client may have caused counts in full, as there is no check")
	}
}

// shares says who gets how much, and when. Datagrams do not queue.
func (e *explanation) shares(b balance.Spec, by uses) {
	if by.streams && e.on("queue", b.Queue.Size > 0) {
		e.line("queue", "%s, each for up to %s, when all backends are full",
			e.counted("queue.size", b.Queue.Size, "client"), e.of("queue.timeout", config.Written(b.Queue.Timeout)))
	}
	if e.on("sticky", b.Sticky != nil) {
		e.line("sticky", "%s keeps its backend for %s after its last connection; %s at most", e.of("sticky.by", "a source"),
			e.of("sticky.ttl", config.Written(b.Sticky.TTL)), e.counted("sticky.size", b.Sticky.Size, "source"))
	}
	if e.on("slow_start", b.SlowStart > 0) {
		e.line("slow start", "%s until a backend that is new or back has its full share", e.of("slow_start", config.Written(b.SlowStart)))
	}
	if e.on("panic", b.Panic > 0) {
		e.line("panic", "if fewer than %s %% of the backends are healthy, all are used", e.of("panic", strconv.Itoa(b.Panic)))
	}
	if by.retries {
		e.line("retry budget", "%s %% of the new connections, and %s a second",
			e.of("retry_budget.percent", strconv.Itoa(b.Retry.Percent)), e.of("retry_budget.floor", strconv.Itoa(b.Retry.Floor)))
	}
}

// backends says where they are, what they are called and what each may get.
func (e *explanation) backends(p config.Pool) {
	names, label := p.Discovery.Names, "backends"
	limited := p.Discovery.MaxConnections > 0 ||
		slices.ContainsFunc(p.Balance.Backends, func(b balance.BackendSpec) bool { return b.MaxConnections > 0 }) ||
		slices.ContainsFunc(names, func(n config.Name) bool { return n.MaxConnections > 0 })
	limited = e.on("max_connections", limited)
	limit := func(key string, n int) string {
		switch {
		case n > 0:
			return fmt.Sprintf(", at most %s at once", e.of(key, strconv.Itoa(n)))
		case limited:
			return ", no limit"
		}
		return ""
	}
	backend := func(item, name, where string, weight int, backup bool, connections int) {
		if name != "" {
			name = e.of(item+".name", name) + ": "
		}
		where = e.of(item+".address", where)
		share := ""
		if weight >= 0 {
			share = fmt.Sprintf(", weight %s", e.of(item+".weight", strconv.Itoa(weight)))
		}
		if backup {
			share += ", backup"
		}
		e.line(label, "%s%s%s%s", name, where, share, limit(item+".max_connections", connections))
		label = ""
	}
	addresses, named := p.Items()
	for i, b := range p.Balance.Backends {
		name := b.Name
		if name == b.Addr.String() {
			name = ""
		}
		backend(addresses[i], name, b.Addr.String(), b.Weight, b.Backup, b.MaxConnections)
	}
	for i, n := range names {
		name, weight, where := n.Name, n.Weight, fmt.Sprintf("by the addresses of %s, port %d", n.Host, n.Port)
		if n.SRV {
			weight, where = -1, "by the SRV records of "+n.Host // which say the weights
		}
		if name == n.Host {
			name = ""
		}
		backend(named[i], name, where, weight, n.Backup, n.MaxConnections)
	}
	if p.Discovery.File != "" {
		e.line(label, "by the list in %s%s", e.of("backends_file", p.Discovery.File), limit("max_connections", p.Discovery.MaxConnections))
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
		for i, s := range r.Servers {
			servers += " " + e.of(fmt.Sprintf("resolve.servers[%d]", i), s.String())
		}
	}
	e.line("names", "asked of %s, every %s to %s", servers,
		e.of("resolve.min_ttl", config.Written(r.MinTTL)), e.of("resolve.max_ttl", config.Written(r.MaxTTL)))
	if e.on("resolve.hold", r.Hold > 0) {
		e.line("", "members stay for %s after a name has none", e.of("resolve.hold", config.Written(r.Hold)))
	}
}
