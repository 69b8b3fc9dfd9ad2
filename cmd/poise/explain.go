package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/udp"
	"github.com/poise-lb/poise/l4/wire"
)

// explain writes what a configuration comes to: for each service who is let in,
// what is expected of the client and where it goes; for each pool what its
// backends see. It reads the lists of prefixes; an error is about them, or w.
func explain(w io.Writer, f *config.File) error {
	var e explanation
	var errs []error
	for _, s := range f.Services {
		errs = append(errs, e.service(s))
	}
	for _, p := range f.Pools {
		e.pool(p)
	}
	e.transparent(f.Pools)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := io.WriteString(w, f.Hide(e.String()))
	return err
}

// An explanation is paragraphs of labelled lines.
type explanation struct{ strings.Builder }

func (e *explanation) title(kind, name string) { fmt.Fprintf(e, "\n%s %s\n", kind, name) }

// line adds a line; one without a label continues what is above.
func (e *explanation) line(label, format string, args ...any) {
	fmt.Fprintf(e, "  %-14s%s\n", label, fmt.Sprintf(format, args...))
}

func (e *explanation) service(s config.Service) error {
	policy, err := admit.New(s.Admit, nil)
	if err != nil {
		return fmt.Errorf("services.%s: %w", s.Name, err)
	}
	e.title("service", s.Name)
	label := "listens on"
	for _, l := range s.Listen() {
		only := ""
		if l.V6Only && l.Addr.Addr() == netip.IPv6Unspecified() {
			only = ", IPv6 only"
		}
		e.line(label, "%s %s%s", l, s.Protocol, only)
		label = ""
	}
	if in := s.TCP.Proxy; in.Accept != 0 {
		version := map[wire.ProxyAccept]string{wire.AcceptV1: "1", wire.AcceptV2: "2", wire.AcceptAny: "1 or 2"}[in.Accept]
		e.line("PROXY in", "version %s, required of %s; all others are the clients themselves", version, joined(in.Trusted))
	}
	e.admission(s, policy)
	e.front(s)
	if s.Protocol == "udp" {
		e.datagrams(s.UDP)
	}
	e.destinations(s)
	return nil
}

// admission says whom a service lets in, in the order of its checks.
func (e *explanation) admission(s config.Service, p *admit.Policy) {
	a := s.Admit
	source := fmt.Sprintf("a source, an IPv4 /%d or an IPv6 /%d", cmp.Or(a.Mask4, 32), cmp.Or(a.Mask6, 128))
	label := "lets in"
	check := func(o l4.Outcome, format string, args ...any) {
		e.line(label, "%s: %s", fmt.Sprintf(format, args...), o)
		label = ""
	}
	lists := p.Prefixes()
	if len(a.Deny)+len(a.DenyFiles) > 0 {
		check(l4.RefusedACL, "nobody of %s", listed(a.Deny, a.DenyFiles, len(lists.Deny)))
	}
	if !lists.AllowAll {
		check(l4.RefusedACL, "nobody but %s", listed(a.Allow, a.AllowFiles, len(lists.Allow)))
	}
	if a.SourceRate > 0 {
		check(l4.RefusedRate, "%s a second from %s", number(a.SourceRate), source)
	}
	if a.Rate > 0 {
		check(l4.RefusedRate, "%s a second in all", number(a.Rate))
	}
	if a.PerSource > 0 {
		check(l4.RefusedLimit, "%d at once from %s", a.PerSource, source)
	}
	by := ""
	switch {
	case label != "": // the policy refuses nobody
	case s.Protocol == "udp":
		by = "silence"
	case a.Silent:
		by = "silence; without CAP_NET_ADMIN (configs/systemd/net-admin.conf) by a reset that clients one hop away see"
	default:
		by = "a reset"
	}
	if n := s.TCP.MaxConnections; n > 0 {
		check(l4.RefusedLimit, "%d at once in all, beyond which they are closed", n)
	}
	if n := s.UDP.MaxSessions; n > 0 {
		check(l4.RefusedLimit, "%d at once in all, beyond which datagrams are dropped", n)
	}
	if label != "" {
		e.line(label, "everybody")
	}
	if by != "" {
		e.line("refuses by", "%s", by)
	}
}

// front says what a client has to begin with.
func (e *explanation) front(s config.Service) {
	if s.TCP.StartTLS {
		e.line("begins with", "PostgreSQL's SSLRequest, which is granted, then TLS")
	}
	if t := s.TLS; t != nil {
		e.line("TLS", "ends here: %s, %s or later%s", plural.Of(len(t.Certificates), "certificate"), tls.VersionName(t.MinVersion), agreed(t.ALPN))
		switch {
		case t.ClientCA == "":
		case t.ClientOptional:
			e.line("", "a client may have a certificate; if so, of an authority in %s", t.ClientCA)
		default:
			e.line("", "a client must have a certificate of an authority in %s", t.ClientCA)
		}
	}
	if s.TLS != nil || s.SNI != nil || s.TCP.Proxy.Accept != 0 {
		e.line("first bytes", "within %s", s.TCP.FirstBytes)
	}
}

// datagrams says what becomes of them.
func (e *explanation) datagrams(u udp.Spec) {
	if u.Spray {
		e.line("sessions", "none: each datagram by itself, nothing comes back")
		return
	}
	replies, limit := "", "no limit of their own"
	if u.Replies > 0 {
		replies = " or " + plural.Of(u.Replies, "reply") + " a datagram"
	}
	if u.MaxSessions > 0 {
		limit = fmt.Sprintf("at most %d", u.MaxSessions)
	}
	e.line("sessions", "end after %s idle%s, %s", u.Idle, replies, limit)
	if u.Retry {
		e.line("retries", "once: what a backend has refused, or not answered when it goes down")
	}
}

// destinations says where clients go.
func (e *explanation) destinations(s config.Service) {
	if s.SNI == nil {
		e.line("goes to", "pool %s", s.Pool)
		return
	}
	e.line("goes to", "by the name in the client's TLS, which is forwarded as it is:")
	for _, r := range s.SNI.Rules {
		e.line("", "%s%s: pool %s", r.Pattern, agreed(r.ALPN), r.Pool)
	}
	for _, other := range []struct{ who, pool string }{
		{"any other name, or none", s.SNI.Default}, {"no TLS", s.SNI.NotTLS}, {"silence", s.SNI.NoHello},
	} {
		where := "closed"
		if other.pool != "" {
			where = "pool " + other.pool
		}
		e.line("", "%s: %s", other.who, where)
	}
}

func (e *explanation) pool(p config.Pool) {
	e.title("pool", p.Balance.Name)
	choice := p.Balance.Algorithm
	if ab := p.Balance.AB; ab != nil {
		choice = fmt.Sprintf("%s for %s %% and %s for the rest", ab.A, number(100*ab.Split), ab.B)
	}
	e.line("balance", "%s", choice)
	label := "backends"
	for _, b := range p.Balance.Backends {
		backup := ""
		if b.Backup {
			backup = ", backup"
		}
		e.line(label, "%s%s", b.Addr, backup)
		label = ""
	}
	for _, n := range p.Discovery.Names {
		if n.SRV {
			e.line(label, "by the SRV records of %s", n.Host)
		} else {
			e.line(label, "by the addresses of %s, port %d", n.Host, n.Port)
		}
		label = ""
	}
	if p.Discovery.File != "" {
		e.line(label, "by the list in %s", p.Discovery.File)
	}
	e.check(p.Check)
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
	if p.Replay > 0 {
		e.line("replay", "up to %s of the client to another backend, if one ends before it answers", plural.Of(p.Replay, "byte"))
	}
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
	e.line("check", "%s every %s, down after %s, up after %d passed", strings.Join(asked, " and "), c.Interval, plural.Of(c.Fall, "failure"), c.Rise)
}

// transparent says what pools with the clients' source addresses take, once for all
// of them: there is one host to set up.
func (e *explanation) transparent(pools []config.Pool) {
	var names []string
	var backends []netip.Prefix
	unknown := false // where some backends are
	for _, p := range pools {
		if !p.Transparent {
			continue
		}
		names = append(names, p.Balance.Name)
		unknown = unknown || len(p.Discovery.Names) > 0 || p.Discovery.File != ""
		for _, b := range p.Balance.Backends {
			a := b.Addr.Addr()
			backends = append(backends, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if names == nil {
		return
	}
	slices.SortFunc(backends, netip.Prefix.Compare)
	backends = slices.Compact(backends)
	if unknown {
		backends = nil
	}
	fmt.Fprintf(e, `
source: client, of %s
  Poise has to have CAP_NET_ADMIN (configs/systemd/net-admin.conf).
  Backends have to send what is for clients through this host. Here, as root
  (scripts/transparent.sh up does the same, and down undoes it):

%s`, strings.Join(names, ", "), transparentRules(backends))
}

// listed names prefixes and files, and how many prefixes these come to.
func listed(prefixes []netip.Prefix, files []string, total int) string {
	const most = 8
	var words []string
	for i, p := range prefixes {
		if i == most {
			words = append(words, fmt.Sprintf("%d more", len(prefixes)-most))
			break
		}
		words = append(words, p.String())
	}
	words = append(words, files...)
	s := strings.Join(words, ", ")
	if len(files) > 0 {
		s += fmt.Sprintf(" (%d when merged)", total)
	}
	return s
}

func joined(prefixes []netip.Prefix) string { return listed(prefixes, nil, 0) }

// agreed is a condition on the protocol.
func agreed(alpn []string) string {
	if len(alpn) == 0 {
		return ""
	}
	return ", for " + strings.Join(alpn, " or ")
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
