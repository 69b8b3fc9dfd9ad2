package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4/balance"
)

// differences collects what a reload changes, in sentences for people. Each starts with
// the object it is about. Keys and their values are named by the tables of keys, so that
// what is said can be found in the file.
type differences struct {
	was, is *File
	object  string // "service web"
	path    string // where its keys are: "services.web"
	before  string // where they were, if that is another place
	lines   []string
}

// began is about another object from now on.
func (d *differences) began(kind, name string) {
	d.object, d.path = kind+" "+name, kind+"s."+name
}

// Diff says what differs between two configurations. runtime.workers is not among it:
// nothing can change it.
func Diff(old, now *File) []string {
	d := &differences{was: old, is: now}
	added, removed := match(old.Services, now.Services, func(s Service) string { return s.Name }, d.service)
	for _, s := range added {
		d.addf("service %s: added %s", s.Name, serviceText(now, s))
	}
	for _, s := range removed {
		d.addf("service %s: removed", s.Name)
	}
	addedPools, removedPools := match(old.Pools, now.Pools, func(p Pool) string { return p.Balance.Name }, d.pool)
	for _, p := range addedPools {
		d.addf("pool %s: added with %s", p.Balance.Name, plural.Of(len(p.Balance.Backends), "backend"))
	}
	for _, p := range removedPools {
		d.addf("pool %s: removed", p.Balance.Name)
	}
	was, is := fileKeys(old, &root{}), fileKeys(now, &root{})
	for i, section := range was {
		if section.keys != nil && section.name != "defaults" { // what inherits them has been compared
			d.object, d.path = section.name, section.name
			d.keys("", section.keys, is[i].keys, special{"workers": unsaid})
		}
	}
	return d.lines
}

// special are keys that are compared in a way of their own, by their paths below the
// object.
type special map[string]func()

// unsaid is for keys of which nothing is said, or elsewhere.
func unsaid() {}

// leave makes keys unsaid.
func (s special) leave(keys ...string) {
	for _, k := range keys {
		s[k] = unsaid
	}
}

// keys reports the keys of a table that differ between the two objects that it was made
// for.
func (d *differences) keys(below string, old, now []key, own special) {
	for i, was := range old {
		is, path := now[i], join(below, was.name)
		compare, apart := own[path]
		switch {
		case apart:
			compare()
		case was.on != nil && was.on() != is.on():
			d.switched(path, is.on())
		case was.keys != nil:
			d.keys(path, was.keys, is.keys, own)
		case was.show != nil:
			d.value(path, was.show(), is.show())
		case was.members != nil:
			d.members(path, was.members(), is.members())
		case was.held != nil && !reflect.DeepEqual(was.held(), is.held()):
			d.addf("%s: %s has changed", d.object, path)
		}
	}
}

// match pairs what is in both lists under the same key, and returns the rest.
func match[T any, K comparable](old, now []T, key func(T) K, both func(old, now T)) (added, removed []T) {
	before := make(map[K]T, len(old))
	for _, o := range old {
		before[key(o)] = o
	}
	after := make(map[K]bool, len(now))
	for _, n := range now {
		after[key(n)] = true
		if o, ok := before[key(n)]; ok {
			both(o, n)
		} else {
			added = append(added, n)
		}
	}
	for _, o := range old {
		if !after[key(o)] {
			removed = append(removed, o)
		}
	}
	return added, removed
}

func (d *differences) addf(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// value reports a key of the object that has another value.
func (d *differences) value(key, old, now string) {
	if old != now {
		d.addf("%s: %s %s -> %s", d.object, key,
			d.was.Told(join(cmp.Or(d.before, d.path), key), cmp.Or(old, `""`)), d.is.Told(join(d.path, key), cmp.Or(now, `""`)))
	}
}

// switched reports a section that is on or off as a whole.
func (d *differences) switched(section string, on bool) {
	if on {
		d.addf("%s: %s off -> on", d.object, section)
	} else {
		d.addf("%s: %s on -> off", d.object, section)
	}
}

// members reports what has come to a list whose order is of no meaning, and what has
// gone.
func (d *differences) members(key string, old, now []string) {
	added, removed := match(old, now, func(s string) string { return s }, func(_, _ string) {})
	path := join(d.path, key) + "[%d]"
	for _, c := range []struct {
		list  []string
		texts map[string]string
		verb  string
	}{{added, told(d.is, path, now, itself), "added"}, {removed, told(d.was, path, old, itself), "removed"}} {
		var texts []string
		for _, s := range c.list {
			texts = append(texts, c.texts[s])
		}
		if len(texts) > 0 {
			d.addf("%s: %s %s %s", d.object, key, plural.Few(texts), c.verb)
		}
	}
}

func itself(s string) string { return s }

// told are the texts of a list's items, as far as they may be told.
func told[T comparable](f *File, path string, list []T, text func(T) string) map[T]string {
	texts := make(map[T]string, len(list))
	for i, item := range list {
		texts[item] = f.Told(fmt.Sprintf(path, i), text(item))
	}
	return texts
}

// sameOrder reports whether two lists are about the same things in the same order.
func sameOrder[T any, K comparable](old, now []T, key func(T) K) bool {
	return slices.EqualFunc(old, now, func(o, n T) bool { return key(o) == key(n) })
}

// laid is the pool as it is while it is read, for a table of keys. What is off has its
// defaults.
func (p Pool) laid() *pool {
	l := &pool{}
	defaults(poolKeys(l))
	l.Pool, l.maxConnections, l.startTLS = p, p.Discovery.MaxConnections, p.StartTLS
	if p.TLS != nil {
		l.tls = *p.TLS
	}
	if p.Balance.AB != nil {
		l.ab = *p.Balance.AB
	}
	if l.stickyOn = p.Balance.Sticky != nil; l.stickyOn {
		l.sticky = *p.Balance.Sticky
	}
	return l
}

// laid is the service as it is while it is read.
func (s Service) laid() *service {
	l := &service{}
	defaults(serviceKeys(l))
	l.Service, l.protocol = s, s.Protocol()
	if s.UDP != nil {
		l.udp, l.tcp.Freebind = *s.UDP, s.UDP.Freebind
	} else {
		l.tcp = *s.TCP
	}
	if s.TLS != nil {
		l.tls = *s.TLS
	}
	return l
}

// laid is the backend as it is while it is read.
func laid(b balance.BackendSpec) []key { return backendKeys(&backend{BackendSpec: b}) }

func (n Name) laid() []key {
	return laid(balance.BackendSpec{Name: n.Name, Weight: n.Weight, Backup: n.Backup, MaxConnections: n.MaxConnections})
}
