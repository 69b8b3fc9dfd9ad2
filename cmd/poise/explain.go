package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/wire"
)

// explain writes what a configuration comes to: for each service who is let in,
// what is expected of the client and where it goes; for each pool what its
// backends see. It reads the lists of prefixes; an error is about them, or w.
func explain(w io.Writer, f *config.File) error {
	e := explanation{hide: f.Hide}
	var errs []error
	for _, s := range f.Services {
		errs = append(errs, e.service(s))
	}
	for _, p := range f.Pools {
		streams := !p.UDP || slices.ContainsFunc(f.Services, func(s config.Service) bool {
			return s.Protocol == "tcp" && slices.Contains(s.Pools(), p.Balance.Name)
		})
		e.pool(p, streams)
	}
	e.transparent(f.Pools)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := io.WriteString(w, e.String())
	return err
}

// An explanation is paragraphs of labelled lines.
type explanation struct {
	strings.Builder
	hide func(string) string // what variables hold
	off  []string            // keys of this paragraph that are turned off
}

func (e *explanation) title(kind, name string) { fmt.Fprintf(e, "\n%s %s\n", kind, e.hide(name)) }

// The columns of an explanation: where texts begin, and where they go on in the next
// line, further to the right.
const (
	explainedFrom = 16
	explainedTo   = 100
)

// line adds a line; one without a label continues what is above. What variables hold
// is hidden before a long line is broken, which would tear a value apart.
func (e *explanation) line(label, format string, args ...any) {
	fmt.Fprintf(e, "  %-*s", explainedFrom-2, label)
	column := explainedFrom
	for i, word := range strings.Split(e.hide(fmt.Sprintf(format, args...)), " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > explainedTo:
			column = explainedFrom + 2
			fmt.Fprintf(e, "\n%*s", column, "")
		default:
			column++
			e.WriteByte(' ')
		}
		column += n
		e.WriteString(word)
	}
	e.WriteByte('\n')
}

// on returns whether something is set, and remembers the key of what is not.
func (e *explanation) on(key string, set bool) bool {
	if !set {
		e.off = append(e.off, key)
	}
	return set
}

// end ends a paragraph with what is turned off in it.
func (e *explanation) end() {
	if len(e.off) > 0 {
		e.line("off", "%s", strings.Join(e.off, ", "))
	}
	e.off = nil
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
	} else {
		e.connections(s.TCP)
	}
	e.destinations(s)
	e.end()
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
	if e.on("limits.source_rate", a.SourceRate > 0) {
		check(l4.RefusedRate, "%s a second from %s", number(a.SourceRate), source)
	}
	if e.on("limits.rate", a.Rate > 0) {
		check(l4.RefusedRate, "%s a second in all", number(a.Rate))
	}
	if !s.UDP.Spray && e.on("limits.per_source", a.PerSource > 0) {
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
	if n := s.TCP.MaxConnections; s.Protocol == "tcp" && e.on("max_connections", n > 0) {
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
	e.WriteString(e.hide(fmt.Sprintf(`
source: client, of %s
  Poise has to have CAP_NET_ADMIN (configs/systemd/net-admin.conf).
  Backends have to send what is for clients through this host. Here, as root
  (scripts/transparent.sh up does the same, and down undoes it):

%s`, strings.Join(names, ", "), transparentRules(backends))))
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
