package daemon

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

// service says what differs between two versions of a service.
func (d *differences) service(old, now config.Service) {
	d.began("service", now.Name)
	d.fields(keys{"TCP": "", "UDP": "", "Admit": "", "TLS": "", "SNI": ""}, old, now)
	d.listeners(old, now)
	if old.Protocol == now.Protocol { // what the other protocol does not have is no change
		d.tcp(old.TCP, now.TCP)
		d.section("udp", keys{"Name": "", "Listen": "", "Freebind": ""}, old.UDP, now.UDP)
		d.value("freebind", old.UDP.Freebind, now.UDP.Freebind)
	}
	d.admission(old.Admit, now.Admit)
	d.tls(old.TLS, now.TLS)
	d.sni(old, now)
}

// serviceText says where a service is and where it leads.
func serviceText(f *config.File, s config.Service) string {
	on, to := plural.Few(toldListeners(f, s, s.Listen())), "pool "
	if s.Protocol != "tcp" {
		on = s.Protocol + " " + on
	}
	pools := s.Pools()
	if len(pools) > 1 {
		to = "pools "
	}
	return "on " + on + ", " + to + plural.Few(pools)
}

// fileChanges says what a reload has found changed in files that services name as they
// did before.
func fileChanges(old, now *generation) (lines []string) {
	for _, n := range now.services {
		o := old.service(n.Name)
		if o == nil {
			continue
		}
		if len(n.Admit.AllowFiles)+len(n.Admit.DenyFiles) > 0 && reflect.DeepEqual(o.Admit, n.Admit) {
			was, is := o.admit.Prefixes(), n.admit.Prefixes()
			if !reflect.DeepEqual(was, is) {
				lines = append(lines, fmt.Sprintf("service %s: access: the files have changed; prefixes, when merged: allowed %d -> %d, denied %d -> %d",
					n.Name, len(was.Allow), len(is.Allow), len(was.Deny), len(is.Deny)))
			}
		}
		if o.certs != nil && n.certs != nil && reflect.DeepEqual(o.TLS, n.TLS) && !reflect.DeepEqual(o.certs.Certificates(), n.certs.Certificates()) {
			lines = append(lines, fmt.Sprintf("service %s: tls: the certificates have changed", n.Name))
		}
	}
	return lines
}

func (d *differences) listeners(old, now config.Service) {
	added, removed := match(allListeners(old), allListeners(now), func(l l4.Listen) l4.Listen { return l }, func(_, _ l4.Listen) {})
	if len(added) > 0 {
		d.addf("%s: listener %s added", d.object, plural.Few(toldListeners(d.is, now, added)))
	}
	if len(removed) > 0 {
		d.addf("%s: listener %s removed", d.object, plural.Few(toldListeners(d.was, old, removed)))
	}
}

// allListeners are those of either protocol, of which a service has one.
func allListeners(s config.Service) []l4.Listen { return slices.Concat(s.TCP.Listen, s.UDP.Listen) }

// toldListeners are the texts of listeners of a service; those from variables are at
// the end.
func toldListeners(f *config.File, s config.Service, list []l4.Listen) []string {
	from := told(f, "services."+s.Name+".listen[%d]", allListeners(s), func(l4.Listen) string { return "" }) // "" = from none
	var plain []l4.Listen
	var written []string
	for _, l := range list {
		switch w := from[l]; {
		case w == "":
			plain = append(plain, l)
		case !slices.Contains(written, w): // of a range there are many
			written = append(written, w)
		}
	}
	return append(listenTexts(plain), written...)
}

func (d *differences) tcp(o, n tcp.Spec) {
	d.fields(keys{
		"Name": "", "Listen": "", "Proxy": "", "StartTLS": "", "MaxHandshakes": "tls.max_handshakes",
		"Connect": "timeouts.connect", "ConnectTotal": "timeouts.connect_total",
		"Idle": "timeouts.idle", "HalfClose": "timeouts.half_close", "FirstBytes": "timeouts.first_bytes",
	}, o, n)
	d.value("proxy_protocol.accept", acceptWord(o.Proxy.Accept), acceptWord(n.Proxy.Accept))
	members(d, "proxy_protocol.trusted", o.Proxy.Trusted, n.Proxy.Trusted)
	d.value("starttls", word(o.StartTLS, "postgres", "none"), word(n.StartTLS, "postgres", "none"))
}

func acceptWord(a wire.ProxyAccept) string {
	switch a {
	case 0:
		return "off"
	case wire.AcceptV1:
		return "v1"
	case wire.AcceptV2:
		return "v2"
	case wire.AcceptAny:
		return "any"
	}
	return fmt.Sprint(uint8(a))
}

func (d *differences) admission(o, n admit.Spec) {
	members(d, "access.deny", o.Deny, n.Deny)
	members(d, "access.allow", o.Allow, n.Allow)
	members(d, "access.deny_files", o.DenyFiles, n.DenyFiles)
	members(d, "access.allow_files", o.AllowFiles, n.AllowFiles)
	d.section("limits", keys{"Deny": "", "Allow": "", "DenyFiles": "", "AllowFiles": "", "Silent": ""}, o, n)
	d.value("on_refuse", word(o.Silent, "drop", "reset"), word(n.Silent, "drop", "reset"))
}

// members reports what has come to a list whose order is of no meaning, and what
// has gone.
func members[T comparable](d *differences, key string, old, now []T) {
	added, removed := match(old, now, func(v T) T { return v }, func(_, _ T) {})
	text := func(v T) string { return show(v) }
	path := d.path + "." + key + "[%d]"
	for _, c := range []struct {
		list  []T
		texts map[T]string
		verb  string
	}{{added, told(d.is, path, now, text), "added"}, {removed, told(d.was, path, old, text), "removed"}} {
		var texts []string
		for _, v := range c.list {
			texts = append(texts, c.texts[v])
		}
		if len(texts) > 0 {
			d.addf("%s: %s %s %s", d.object, key, plural.Few(texts), c.verb)
		}
	}
}

func (d *differences) tls(old, now *cert.Spec) {
	d.value("tls", word(old != nil, "on", "off"), word(now != nil, "on", "off"))
	if old == nil || now == nil {
		return
	}
	path, file := d.path+".tls.certificates[%d].cert", func(p cert.Pair) string { return p.Cert }
	was, is := told(d.was, path, old.Certificates, file), told(d.is, path, now.Certificates, file)
	added, removed := match(old.Certificates, now.Certificates, file, func(o, n cert.Pair) {
		if o != n {
			d.addf("%s: tls.certificates %s has another key or ocsp", d.object, is[n])
		}
	})
	for _, p := range added {
		d.addf("%s: tls.certificates %s added", d.object, is[p])
	}
	for _, p := range removed {
		d.addf("%s: tls.certificates %s removed", d.object, was[p])
	}
	if len(added)+len(removed) == 0 && !slices.EqualFunc(old.Certificates, now.Certificates, func(o, n cert.Pair) bool { return o.Cert == n.Cert }) {
		d.addf("%s: tls.certificates in another order", d.object)
	}
	d.section("tls", keys{"Certificates": "", "MinVersion": ""}, *old, *now)
	d.value("tls.min_version", versionText(old.MinVersion), versionText(now.MinVersion))
}

// clientTLS says what differs in the TLS towards the backends of a pool.
func (d *differences) clientTLS(old, now *cert.ClientSpec) {
	d.value("tls", word(old != nil, "on", "off"), word(now != nil, "on", "off"))
	if old == nil || now == nil {
		return
	}
	d.section("tls", keys{"MinVersion": ""}, *old, *now)
	d.value("tls.min_version", versionText(old.MinVersion), versionText(now.MinVersion))
}

// versionText writes a version of TLS as the configuration does.
func versionText(v uint16) string { return strings.TrimPrefix(tls.VersionName(v), "TLS ") }

func (d *differences) sni(before, after config.Service) {
	old, now := before.SNI, after.SNI
	d.value("sni", word(old != nil, "on", "off"), word(now != nil, "on", "off"))
	if old == nil || now == nil {
		return
	}
	type name struct{ pattern, to string }
	names := func(f *config.File, s config.Service) (list []name) {
		for i, r := range s.SNI.Rules {
			to := r.Pool
			if len(r.ALPN) > 0 {
				to += " for " + strings.Join(f.ToldRule(s, i), ", ")
			}
			if last := len(list) - 1; last >= 0 && list[last].pattern == r.Pattern { // they are sorted
				list[last].to += "; " + to
			} else {
				list = append(list, name{r.Pattern, to})
			}
		}
		return list
	}
	added, removed := match(names(d.was, before), names(d.is, after), func(n name) string { return n.pattern }, func(o, n name) {
		d.value("sni "+n.pattern, o.to, n.to)
	})
	for _, n := range added {
		d.addf("%s: sni %s added, to %s", d.object, n.pattern, n.to)
	}
	for _, n := range removed {
		d.addf("%s: sni %s removed", d.object, n.pattern)
	}
	d.section("sni", keys{"Rules": "", "NotTLS": "sni.not_tls"}, *old, *now)
}
