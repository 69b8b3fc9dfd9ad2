package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
)

// discovery reports what a reload changes about where backends come from.
func (d *differences) discovery(was, is config.Pool) {
	old, now, pool, path := was.Discovery, is.Discovery, d.object, d.path
	places := func(p config.Pool) map[string]string {
		_, items := p.Items()
		at := make(map[string]string, len(items))
		for i, n := range p.Discovery.Names {
			at[n.Address()] = path + "." + items[i]
		}
		return at
	}
	before, after := places(was), places(is)
	text := func(f *config.File, at map[string]string, n config.Name) string {
		return f.Told(at[n.Address()]+".address", n.Address())
	}
	added, removed := match(old.Names, now.Names, config.Name.Address, func(o, n config.Name) {
		d.object = fmt.Sprintf("%s: backend %s", pool, text(d.is, after, n))
		d.path, d.before = after[n.Address()], before[o.Address()]
		d.value("name", o.Name, n.Name)
		d.value("weight", o.Weight, n.Weight)
		d.value("backup", o.Backup, n.Backup)
		d.value("max_connections", o.MaxConnections, n.MaxConnections)
	})
	for _, n := range added {
		d.addf("%s: backend %s added", pool, text(d.is, after, n))
	}
	for _, n := range removed {
		d.addf("%s: backend %s removed", pool, text(d.was, before, n))
	}
	d.object, d.path, d.before = pool, path, ""
	d.value("backends_file", old.File, now.File)
	d.value("max_connections", old.MaxConnections, now.MaxConnections) // of those in the file
	if !slices.Equal(old.Resolve.Servers, now.Resolve.Servers) {
		d.addf("%s: resolve.servers %s -> %s", pool, serverTexts(d.was, path, old.Resolve.Servers), serverTexts(d.is, path, now.Resolve.Servers))
	}
	d.value("resolve.min_ttl", old.Resolve.MinTTL, now.Resolve.MinTTL)
	d.value("resolve.max_ttl", old.Resolve.MaxTTL, now.Resolve.MaxTTL)
	d.value("resolve.hold", old.Resolve.Hold, now.Resolve.Hold)
}

func serverTexts(f *config.File, pool string, servers []netip.AddrPort) string {
	var texts []string
	for i, s := range servers {
		texts = append(texts, f.Told(fmt.Sprintf("%s.resolve.servers[%d]", pool, i), s.String()))
	}
	return cmp.Or(plural.Few(texts), "the host's")
}
