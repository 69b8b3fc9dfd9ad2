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
	"unicode"
	"unicode/utf8"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/wire"
)

// explain writes what a configuration comes to: for each service who is let in,
// what is expected of the client and where it goes; for each pool what its
// backends see. It reads the lists of prefixes; an error is about them, or w.
func explain(w io.Writer, f *config.File) error {
	e := explanation{file: f}
	var errs []error
	for _, s := range f.Services {
		errs = append(errs, e.service(s))
	}
	for _, p := range f.Pools {
		e.pool(p, usesOf(f.Services, p))
	}
	e.transparent(f.Pools)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := io.WriteString(w, e.String())
	return err
}

// usesOf is what the services do with a pool. One that none uses may be for either.
func usesOf(services []config.Service, p config.Pool) uses {
	by := uses{streams: true, keeps: true, retries: true}
	for i, s := range slices.DeleteFunc(slices.Clone(services), func(s config.Service) bool {
		return !slices.Contains(s.Pools(), p.Balance.Name)
	}) {
		if i == 0 {
			by = uses{}
		}
		if u := s.UDP; u != nil {
			by.keeps = by.keeps || !u.Spray
			by.retries = by.retries || u.Retry
		} else {
			by.streams, by.keeps = true, true
			by.retries = by.retries || s.TCP.Retries > 0
		}
	}
	return by
}

// An explanation is paragraphs of labelled lines.
type explanation struct {
	strings.Builder
	file *config.File
	path string   // of this paragraph's object: "services.web"
	off  []string // keys of this paragraph that are turned off
}

// title begins the paragraph of a service or a pool.
func (e *explanation) title(kind, name string) {
	e.path = kind + "s." + name
	fmt.Fprintf(e, "\n%s %s\n", kind, name)
}

// of is what may be told of the value of a key: how it is written, if it comes from a
// variable, and otherwise the text, which is the value in words.
func (e *explanation) of(key, text string) string { return e.file.Told(e.path+"."+key, text) }

// counted is a number of something. The plural of a variable does not tell of one.
func (e *explanation) counted(key string, n int, noun string) string {
	return e.of(key, strconv.Itoa(n)) + " " + plural.Noun(n == 1 && !e.hides(key), noun)
}

// items are the values of a list.
func (e *explanation) items(key string, texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = e.of(fmt.Sprintf("%s[%d]", key, i), plainly(text))
	}
	return all
}

// hides reports whether one of the values comes from a variable, so that what follows
// from them may not be told either.
func (e *explanation) hides(keys ...string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return e.of(k, "") != "" })
}

// plainly is a text on one line, in quotes if it needs them for that.
func plainly(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// The columns of an explanation: where texts begin, and where they go on in the next
// line, further to the right.
const (
	explainedFrom = 16
	explainedTo   = 100
)

// line adds a line; one without a label continues what is above.
func (e *explanation) line(label, format string, args ...any) {
	fmt.Fprintf(e, "  %-*s", explainedFrom-2, label)
	column := explainedFrom
	for i, word := range strings.Split(fmt.Sprintf(format, args...), " ") {
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
	e.listeners(s)
	if s.TCP != nil && s.TCP.Proxy.Accept != 0 {
		in := s.TCP.Proxy
		version := map[wire.ProxyAccept]string{wire.AcceptV1: "1", wire.AcceptV2: "2", wire.AcceptAny: "1 or 2"}[in.Accept]
		e.line("PROXY in", "version %s, required of %s; all others are the clients themselves",
			e.of("proxy_protocol.accept", version), e.listed("proxy_protocol.trusted", in.Trusted, "", nil, 0))
	}
	e.admission(s, policy)
	if s.UDP != nil {
		e.datagrams(*s.UDP)
	} else {
		e.front(s)
		e.connections(*s.TCP)
	}
	e.destinations(s)
	e.end()
	return nil
}

// listeners says where a service listens; ports in a row are a range.
func (e *explanation) listeners(s config.Service) {
	label, foreign, all := "listens on", false, s.Listen()
	for i := 0; i < len(all); {
		first, n, key := all[i], 1, fmt.Sprintf("listen[%d]", i)
		for ; i+n < len(all) && e.of(fmt.Sprintf("listen[%d]", i+n), "") == e.of(key, ""); n++ {
			next := netip.AddrPortFrom(first.Addr.Addr(), first.Addr.Port()+uint16(n))
			if all[i+n] != (l4.Listen{Addr: next, V6Only: first.V6Only}) {
				break
			}
		}
		address, meaning := listens(first, n)
		if e.hides(key) {
			meaning = "" // which would tell a part of it
		}
		e.line(label, "%s %s%s", e.of(key, address), e.of("protocol", s.Protocol().String()), meaning)
		label, foreign = "", foreign || !first.Addr.Addr().IsUnspecified()
		i += n
	}
	freebind := s.TCP != nil && s.TCP.Freebind || s.UDP != nil && s.UDP.Freebind
	if foreign && freebind {
		e.line("", "%s", e.of("freebind", "also while this host does not have the address"))
	}
}

// listens is where n listeners are whose ports follow each other, and what that means.
func listens(l l4.Listen, n int) (address, meaning string) {
	address = l.Addr.String()
	if n > 1 {
		address += fmt.Sprintf("-%d", int(l.Addr.Port())+n-1)
	}
	switch {
	case l.Addr.Addr() == netip.IPv4Unspecified():
		return address, ", every IPv4 address"
	case l.Addr.Addr() == netip.IPv6Unspecified() && l.V6Only:
		return address, ", every IPv6 address"
	case l.Addr.Addr() == netip.IPv6Unspecified():
		return strings.TrimPrefix(address, "[::]"), ", every address, IPv4 and IPv6"
	}
	return address, ""
}

// admission says whom a service lets in, in the order of its checks.
func (e *explanation) admission(s config.Service, p *admit.Policy) {
	a := s.Admit
	source := fmt.Sprintf("a source, an IPv4 /%s or an IPv6 /%s",
		e.of("limits.mask4", strconv.Itoa(cmp.Or(a.Mask4, 32))), e.of("limits.mask6", strconv.Itoa(cmp.Or(a.Mask6, 128))))
	label := "lets in"
	check := func(o l4.Outcome, format string, args ...any) {
		e.line(label, "%s: %s", fmt.Sprintf(format, args...), o)
		label = ""
	}
	lists := p.Prefixes()
	if len(a.Deny)+len(a.DenyFiles) > 0 {
		check(l4.RefusedACL, "nobody of %s", e.listed("access.deny", a.Deny, "access.deny_files", a.DenyFiles, len(lists.Deny)))
	}
	if !lists.AllowAll {
		check(l4.RefusedACL, "nobody but %s", e.listed("access.allow", a.Allow, "access.allow_files", a.AllowFiles, len(lists.Allow)))
	}
	if e.on("limits.source_rate", a.SourceRate > 0) {
		check(l4.RefusedRate, "%s a second from %s", e.of("limits.source_rate", number(a.SourceRate)), source)
	}
	if e.on("limits.rate", a.Rate > 0) {
		check(l4.RefusedRate, "%s a second in all", e.of("limits.rate", number(a.Rate)))
	}
	if (s.UDP == nil || !s.UDP.Spray) && e.on("limits.per_source", a.PerSource > 0) {
		check(l4.RefusedLimit, "%s at once from %s", e.of("limits.per_source", strconv.Itoa(a.PerSource)), source)
	}
	by := ""
	switch {
	case label != "": // the policy refuses nobody
	case s.UDP != nil:
		by = "silence"
	case a.Silent:
		by = e.of("on_refuse", "silence; without CAP_NET_ADMIN (configs/systemd/net-admin.conf) by a reset that clients one hop away see")
	default:
		by = e.of("on_refuse", "a reset")
	}
	if t := s.TCP; t != nil && e.on("max_connections", t.MaxConnections > 0) {
		check(l4.RefusedLimit, "%s at once in all, beyond which they are closed", e.of("max_connections", strconv.Itoa(t.MaxConnections)))
	}
	if u := s.UDP; u != nil && u.MaxSessions > 0 {
		check(l4.RefusedLimit, "%s at once in all, beyond which datagrams are dropped", e.of("udp.max_sessions", strconv.Itoa(u.MaxSessions)))
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
		e.path = "pools." + p.Balance.Name
		addresses, _ := p.Items()
		for i, b := range p.Balance.Backends {
			unknown = unknown || e.hides(addresses[i]+".address")
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

// listed names the prefixes and the files that two keys list, and how many prefixes
// these come to.
func (e *explanation) listed(key string, prefixes []netip.Prefix, filesKey string, files []string, total int) string {
	const most = 8
	var words []string
	for i, p := range prefixes {
		if i == most {
			words = append(words, fmt.Sprintf("%d more", len(prefixes)-most))
			break
		}
		words = append(words, e.of(fmt.Sprintf("%s[%d]", key, i), p.String()))
	}
	words = append(words, e.items(filesKey, files)...)
	s := strings.Join(words, ", ")
	if len(files) > 0 {
		s += fmt.Sprintf(" (%d when merged)", total)
	}
	return s
}

// agreed is a condition on the protocol.
func agreed(alpn []string) string {
	if len(alpn) == 0 {
		return ""
	}
	return ", for " + strings.Join(alpn, " or ")
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
