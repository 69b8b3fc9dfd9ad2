package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4/balance"
)

// differences collects what a reload changes, in sentences for people. Each
// starts with the object it is about and names a key as the file does.
type differences struct {
	was, is *config.File
	object  string // "service web"
	path    string // where its keys are: "services.web"
	before  string // where they were, if that is another place
	lines   []string
}

// began is about another object from now on.
func (d *differences) began(kind, name string) {
	d.object, d.path = kind+" "+name, kind+"s."+name
}

// diff says what differs between two configurations. runtime.workers is not
// among it: nothing can change it.
func diff(old, now *config.File) []string {
	d := &differences{was: old, is: now}
	added, removed := match(old.Services, now.Services, func(s config.Service) string { return s.Name }, d.service)
	for _, s := range added {
		d.addf("service %s: added %s", s.Name, serviceText(now, s))
	}
	for _, s := range removed {
		d.addf("service %s: removed", s.Name)
	}
	addedPools, removedPools := match(old.Pools, now.Pools, func(p config.Pool) string { return p.Balance.Name }, d.pool)
	for _, p := range addedPools {
		d.addf("pool %s: added with %s", p.Balance.Name, plural.Of(len(p.Balance.Backends), "backend"))
	}
	for _, p := range removedPools {
		d.addf("pool %s: removed", p.Balance.Name)
	}
	for _, section := range []struct {
		name     string
		old, now any
	}{
		{"admin", old.Admin, now.Admin},
		{"log", old.Log, now.Log},
		{"runtime", old.Runtime, now.Runtime},
	} {
		d.object, d.path = section.name, section.name
		d.fields(keys{"Workers": ""}, section.old, section.now)
	}
	return d.lines
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
func (d *differences) value(key string, old, now any) {
	if old != now {
		d.addf("%s: %s %s -> %s", d.object, key,
			d.was.Told(cmp.Or(d.before, d.path)+"."+key, show(old)), d.is.Told(d.path+"."+key, show(now)))
	}
}

// told are the texts of a list's items, as far as they may be told.
func told[T comparable](f *config.File, path string, list []T, text func(T) string) map[T]string {
	texts := make(map[T]string, len(list))
	for i, item := range list {
		texts[item] = f.Told(fmt.Sprintf(path, i), text(item))
	}
	return texts
}

func show(v any) string {
	if a, ok := v.(netip.Addr); ok && !a.IsValid() {
		return `""`
	}
	if s := fmt.Sprint(v); s != "" {
		return s
	}
	return `""`
}

func word(set bool, yes, no string) string {
	if set {
		return yes
	}
	return no
}

func (d *differences) pool(old, now config.Pool) {
	d.began("pool", now.Balance.Name)
	d.fields(keys{"Name": "", "Algorithm": "balance", "Retry": "retry_budget", "Backends": ""}, old.Balance, now.Balance)
	d.value("on_down", word(old.OnDownClose, "close", "keep"), word(now.OnDownClose, "close", "keep"))
	d.value("check.initial", word(old.Check.InitialDown, "down", "up"), word(now.Check.InitialDown, "down", "up"))
	old.Check.InitialDown = now.Check.InitialDown
	d.value("source", sourceText(old), sourceText(now))
	d.value("send_proxy", cmp.Or(old.SendProxy, "off"), cmp.Or(now.SendProxy, "off"))
	old.Check.Source, old.Check.Proxy = now.Check.Source, now.Check.Proxy // they follow from these two
	old.Passive.Checked = now.Passive.Checked                             // and this from the check
	d.fields(keys{
		"Balance": "", "Discovery": "", "OnDownClose": "", "Source": "", "Transparent": "",
		"SendProxy": "", "TLS": "", "StartTLS": "", "UDP": "",
	}, old, now)
	d.clientTLS(old.TLS, now.TLS)
	d.value("tls.starttls", word(old.StartTLS, "postgres", "none"), word(now.StartTLS, "postgres", "none"))
	d.discovery(old, now)
	d.backends(old, now)
}

func sourceText(p config.Pool) string {
	switch {
	case p.Transparent:
		return "client"
	case p.Source.IsValid():
		return p.Source.String()
	}
	return ""
}

// keys names fields of a struct that are called otherwise than their key; "" is
// not reported.
type keys map[string]string

// fields reports what differs between two structs of one type that are made like
// a section of the file.
func (d *differences) fields(names keys, old, now any) { d.section("", names, old, now) }

// section is fields for what stands under a key; keys that are named are whole.
func (d *differences) section(prefix string, names keys, old, now any) {
	o, n := reflect.ValueOf(old), reflect.ValueOf(now)
	for i := range o.NumField() {
		field := o.Type().Field(i).Name
		key, named := names[field]
		if !named {
			key = snakeCase(field)
			if prefix != "" {
				key = prefix + "." + key
			}
		}
		if key != "" {
			d.field(key, o.Field(i), n.Field(i))
		}
	}
}

// field reports a key. Lists are not spelled out, and secrets must not be.
func (d *differences) field(key string, old, now reflect.Value) {
	o, n := old.Interface(), now.Interface()
	_, speaks := o.(fmt.Stringer)
	switch {
	case reflect.DeepEqual(o, n):
	case old.Kind() == reflect.Struct && !speaks:
		for i := range old.NumField() {
			d.field(key+"."+snakeCase(old.Type().Field(i).Name), old.Field(i), now.Field(i))
		}
	case old.Kind() == reflect.Slice, old.Kind() == reflect.Map, old.Kind() == reflect.Pointer,
		strings.Contains(key, "password"), show(o) == show(n):
		d.addf("%s: %s has changed", d.object, key)
	default:
		d.value(key, o, n)
	}
}

// snakeCase writes a field as its key: ExpectStatus is expect_status, HTTP is
// http, MinTTL is min_ttl.
func snakeCase(field string) string {
	var b strings.Builder
	for i, r := range field {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(rune(field[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Replace(b.String(), "my_sql", "mysql", 1) // a word of its own
}

// backends pairs by address: another address is another server, another name is
// not.
func (d *differences) backends(was, is config.Pool) {
	pool, path := d.object, d.path
	o, n := newBackendTexts(d.was, path, was), newBackendTexts(d.is, path, is)
	old, now := was.Balance.Backends, is.Balance.Backends
	added, removed := match(old, now, func(b balance.BackendSpec) balance.Address { return b.Addr },
		func(before, after balance.BackendSpec) {
			d.object, d.path, d.before = pool+": backend "+n.name(after), n.path(after), o.path(before)
			if before.Name != after.Name {
				d.addf("%s: was called %s", d.object, o.name(before))
			}
			d.fields(keys{"Name": "", "Addr": "", "Initial": ""}, before, after)
		})
	d.object, d.path, d.before = pool, path, ""
	for _, b := range added {
		d.addf("%s: backend %s added", pool, n.text(b))
	}
	for _, b := range removed {
		d.addf("%s: backend %s removed", pool, o.text(b))
	}
	if len(added)+len(removed) == 0 && !slices.EqualFunc(old, now, func(o, n balance.BackendSpec) bool { return o.Addr == n.Addr }) {
		d.addf("%s: backends in another order", pool)
	}
}

// backendTexts are what may be told of the backends of a pool.
type backendTexts struct {
	file  *config.File
	place map[balance.Address]string // in the file
}

func newBackendTexts(f *config.File, pool string, p config.Pool) backendTexts {
	t := backendTexts{f, map[balance.Address]string{}}
	items, _ := p.Items()
	for i, b := range p.Balance.Backends {
		t.place[b.Addr] = pool + "." + items[i]
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
