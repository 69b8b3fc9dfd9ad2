package config

import (
	"slices"
	"strings"

	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/cert"
)

// service says what differs between two versions of a service.
func (d *differences) service(old, now Service) {
	d.began("service", now.Name)
	own := special{
		"listen":           func() { d.listeners(old, now) },
		"sni":              func() { d.sni(old, now) },
		"tls.certificates": func() { d.certificates(old.TLS, now.TLS) },
	}
	if old.Protocol() != now.Protocol() { // what the other protocol does not have is no change
		own.leave(streamKeys...)
		own.leave("udp", "freebind")
	}
	d.keys("", serviceKeys(old.laid()), serviceKeys(now.laid()), own)
}

// serviceText says where a service is and where it leads.
func serviceText(f *File, s Service) string {
	on, to := plural.Few(toldListeners(f, s, s.Listen())), "pool "
	if s.UDP != nil {
		on = "udp " + on
	}
	pools := s.Pools()
	if len(pools) > 1 {
		to = "pools "
	}
	return "on " + on + ", " + to + plural.Few(pools)
}

func (d *differences) listeners(old, now Service) {
	added, removed := match(old.Listen(), now.Listen(), func(l l4.Listen) l4.Listen { return l }, func(_, _ l4.Listen) {})
	if len(added) > 0 {
		d.addf("%s: listener %s added", d.object, plural.Few(toldListeners(d.is, now, added)))
	}
	if len(removed) > 0 {
		d.addf("%s: listener %s removed", d.object, plural.Few(toldListeners(d.was, old, removed)))
	}
}

// toldListeners are the texts of listeners of a service; those from variables are at
// the end.
func toldListeners(f *File, s Service, list []l4.Listen) []string {
	from := told(f, "services."+s.Name+".listen[%d]", s.Listen(), func(l4.Listen) string { return "" }) // "" = from none
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
	return append(ListenTexts(plain), written...)
}

// certificates pairs by file.
func (d *differences) certificates(old, now *cert.Spec) {
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
	if len(added)+len(removed) == 0 && !sameOrder(old.Certificates, now.Certificates, file) {
		d.addf("%s: tls.certificates in another order", d.object)
	}
}

func (d *differences) sni(before, after Service) {
	old, now := before.SNI, after.SNI
	switch {
	case (old != nil) != (now != nil):
		d.switched("sni", now != nil)
		return
	case old == nil:
		return
	}
	type name struct{ pattern, to string }
	names := func(f *File, s Service) (list []name) {
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
	d.value("sni.default", old.Default, now.Default)
	d.value("sni.not_tls", old.NotTLS, now.NotTLS)
	d.value("sni.no_hello", old.NoHello, now.NoHello)
}
