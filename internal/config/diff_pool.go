package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4/balance"
)

// pool says what differs between two versions of a pool.
func (d *differences) pool(old, now Pool) {
	d.began("pool", now.Balance.Name)
	own := special{
		"backends": func() {
			d.backends(old, now)
			d.names(old, now)
		},
		"resolve.servers": func() { d.servers(old.Discovery.Resolve.Servers, now.Discovery.Resolve.Servers) },
	}
	if old.Balance.AB != nil || now.Balance.AB != nil {
		own.leave("balance") // ab is instead of it
	}
	if old.Check.Type == health.AllOf || now.Check.Type == health.AllOf {
		for _, k := range questionNames() {
			own.leave("check." + k) // checks are instead of them
		}
	}
	d.keys("", poolKeys(old.laid()), poolKeys(now.laid()), own)
}

// backends pairs by address: another address is another server, another name is
// not.
func (d *differences) backends(was, is Pool) {
	pool, path := d.object, d.path
	o, n := newBackendTexts(d.was, path, was), newBackendTexts(d.is, path, is)
	old, now := was.Balance.Backends, is.Balance.Backends
	address := func(b balance.BackendSpec) balance.Address { return b.Addr }
	added, removed := match(old, now, address, func(before, after balance.BackendSpec) {
		d.object, d.path, d.before = pool+": backend "+n.name(after), n.path(after), o.path(before)
		d.keys("", laid(before), laid(after), special{"address": unsaid, "name": func() {
			if before.Name != after.Name {
				d.addf("%s: was called %s", d.object, o.name(before))
			}
		}})
	})
	d.object, d.path, d.before = pool, path, ""
	for _, b := range added {
		d.addf("%s: backend %s added", pool, n.text(b))
	}
	for _, b := range removed {
		d.addf("%s: backend %s removed", pool, o.text(b))
	}
	if len(added)+len(removed) == 0 && !sameOrder(old, now, address) {
		d.addf("%s: backends in another order", pool)
	}
}

// backendTexts are what may be told of the backends of a pool.
type backendTexts struct {
	file  *File
	place map[balance.Address]string // in the file
}

func newBackendTexts(f *File, pool string, p Pool) backendTexts {
	t := backendTexts{f, map[balance.Address]string{}}
	items, _ := p.Items()
	for i, b := range p.Balance.Backends {
		t.place[b.Addr] = join(pool, items[i])
	}
	return t
}

func (t backendTexts) path(b balance.BackendSpec) string { return t.place[b.Addr] }

func (t backendTexts) name(b balance.BackendSpec) string {
	return t.file.Told(t.path(b)+".name", b.Name)
}

func (t backendTexts) text(b balance.BackendSpec) string {
	if b.Name == b.Addr.String() {
		return t.name(b)
	}
	return fmt.Sprintf("%s (%s)", t.name(b), t.file.Told(t.path(b)+".address", b.Addr.String()))
}

// names reports the backends that are given by name.
func (d *differences) names(was, is Pool) {
	pool, path := d.object, d.path
	places := func(p Pool) map[string]string {
		_, items := p.Items()
		at := make(map[string]string, len(items))
		for i, n := range p.Discovery.Names {
			at[n.Address()] = join(path, items[i])
		}
		return at
	}
	before, after := places(was), places(is)
	text := func(f *File, at map[string]string, n Name) string {
		return f.Told(at[n.Address()]+".address", n.Address())
	}
	added, removed := match(was.Discovery.Names, is.Discovery.Names, Name.Address, func(o, n Name) {
		d.object = fmt.Sprintf("%s: backend %s", pool, text(d.is, after, n))
		d.path, d.before = after[n.Address()], before[o.Address()]
		d.keys("", o.laid(), n.laid(), special{"address": unsaid})
	})
	d.object, d.path, d.before = pool, path, ""
	for _, n := range added {
		d.addf("%s: backend %s added", pool, text(d.is, after, n))
	}
	for _, n := range removed {
		d.addf("%s: backend %s removed", pool, text(d.was, before, n))
	}
}

func (d *differences) servers(old, now []netip.AddrPort) {
	texts := func(f *File, servers []netip.AddrPort) string {
		var texts []string
		for i, s := range servers {
			texts = append(texts, f.Told(index(join(d.path, "resolve.servers"), i), s.String()))
		}
		return cmp.Or(plural.Few(texts), "the host's")
	}
	if !slices.Equal(old, now) {
		d.addf("%s: resolve.servers %s -> %s", d.object, texts(d.was, old), texts(d.is, now))
	}
}
