package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// differences collects what a reload changes, in sentences for people. Each
// starts with the object it is about and names a key as the file does.
type differences struct {
	object string
	lines  []string
}

// diff says what differs between two configurations. runtime.workers is not
// among it: nothing can change it.
func diff(old, now *config.File) []string {
	d := &differences{}
	added, removed := match(old.Services, now.Services, func(s config.Service) string { return s.Name }, d.service)
	for _, s := range added {
		d.addf("service %s: added on %s, pool %s", s.Name, few(listenTexts(s.TCP.Listen)), s.Pool)
	}
	for _, s := range removed {
		d.addf("service %s: removed", s.Name)
	}
	addedPools, removedPools := match(old.Pools, now.Pools, func(p config.Pool) string { return p.Balance.Name }, d.pool)
	for _, p := range addedPools {
		d.addf("pool %s: added with %d backends", p.Balance.Name, len(p.Balance.Backends))
	}
	for _, p := range removedPools {
		d.addf("pool %s: removed", p.Balance.Name)
	}
	d.object = "admin"
	d.value("socket", old.Admin.Socket, now.Admin.Socket)
	d.value("http", old.Admin.HTTP, now.Admin.HTTP)
	d.object = "log"
	d.value("level", old.Log.Level, now.Log.Level)
	d.value("format", old.Log.Format, now.Log.Format)
	d.value("access", old.Log.Access, now.Log.Access)
	d.value("access_format", old.Log.AccessFormat, now.Log.AccessFormat)
	d.object = "runtime"
	d.value("pre_stop", old.Runtime.PreStop, now.Runtime.PreStop)
	d.value("drain", old.Runtime.Drain, now.Runtime.Drain)
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
		d.addf("%s: %s %s -> %s", d.object, key, show(old), show(now))
	}
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

func (d *differences) service(old, now config.Service) {
	d.object = "service " + now.Name
	d.value("pool", old.Pool, now.Pool)
	o, n := old.TCP, now.TCP
	listener := func(l tcp.Listen) tcp.Listen { return l }
	added, removed := match(o.Listen, n.Listen, listener, func(_, _ tcp.Listen) {})
	if len(added) > 0 {
		d.addf("%s: listener %s added", d.object, few(listenTexts(added)))
	}
	if len(removed) > 0 {
		d.addf("%s: listener %s removed", d.object, few(listenTexts(removed)))
	}
	d.value("freebind", o.Freebind, n.Freebind)
	d.value("max_connections", o.MaxConnections, n.MaxConnections)
	d.value("timeouts.connect", o.Connect, n.Connect)
	d.value("timeouts.connect_total", o.ConnectTotal, n.ConnectTotal)
	d.value("timeouts.idle", o.Idle, n.Idle)
	d.value("timeouts.half_close", o.HalfClose, n.HalfClose)
	d.value("keepalive.idle", o.Keepalive.Idle, n.Keepalive.Idle)
	d.value("keepalive.interval", o.Keepalive.Interval, n.Keepalive.Interval)
	d.value("keepalive.probes", o.Keepalive.Probes, n.Keepalive.Probes)
	d.value("retries", o.Retries, n.Retries)
}

// few lists the first of many.
func few(texts []string) string {
	const most = 8
	if len(texts) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
	}
	return strings.Join(texts, ", ")
}

func (d *differences) pool(old, now config.Pool) {
	d.object = "pool " + now.Balance.Name
	d.value("balance", old.Balance.Algorithm, now.Balance.Algorithm)
	d.value("hash.key", old.Balance.Hash.Key, now.Balance.Hash.Key)
	d.value("hash.mask4", old.Balance.Hash.Mask4, now.Balance.Hash.Mask4)
	d.value("hash.mask6", old.Balance.Hash.Mask6, now.Balance.Hash.Mask6)
	d.value("hash.bound", old.Balance.Hash.Bound, now.Balance.Hash.Bound)
	d.value("on_down", word(old.OnDownClose, "close", "keep"), word(now.OnDownClose, "close", "keep"))
	d.value("source", old.Source, now.Source)
	d.check(old.Check, now.Check)
	d.value("passive.failures", old.Passive.Failures, now.Passive.Failures)
	d.value("passive.base", old.Passive.Base, now.Passive.Base)
	d.value("passive.max", old.Passive.Max, now.Passive.Max)
	d.value("passive.max_percent", old.Passive.MaxPercent, now.Passive.MaxPercent)
	d.backends(old.Balance.Backends, now.Balance.Backends)
}

func (d *differences) check(o, n health.Spec) {
	d.value("check.type", o.Type, n.Type)
	d.value("check.interval", o.Interval, n.Interval)
	d.value("check.fast_interval", o.FastInterval, n.FastInterval)
	d.value("check.down_interval", o.DownInterval, n.DownInterval)
	d.value("check.timeout", o.Timeout, n.Timeout)
	d.value("check.rise", o.Rise, n.Rise)
	d.value("check.fall", o.Fall, n.Fall)
	d.value("check.port", o.Port, n.Port)
	d.value("check.initial", word(o.InitialDown, "down", "up"), word(n.InitialDown, "down", "up"))
	d.value("check.http.path", o.HTTP.Path, n.HTTP.Path)
	d.value("check.http.method", o.HTTP.Method, n.HTTP.Method)
	d.value("check.http.host", o.HTTP.Host, n.HTTP.Host)
	d.value("check.http.expect_status", statuses(o.HTTP.ExpectStatus), statuses(n.HTTP.ExpectStatus))
	d.value("check.http.expect_body", o.HTTP.ExpectBody, n.HTTP.ExpectBody)
}

func statuses(ranges []health.StatusRange) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ",")
}

// backends pairs by address: another address is another server, another name is
// not.
func (d *differences) backends(old, now []balance.BackendSpec) {
	pool := d.object
	added, removed := match(old, now, func(b balance.BackendSpec) balance.Address { return b.Addr },
		func(o, n balance.BackendSpec) {
			d.object = pool + ": backend " + n.Name
			if o.Name != n.Name {
				d.addf("%s: was called %s", d.object, o.Name)
			}
			d.value("weight", o.Weight, n.Weight)
			d.value("backup", o.Backup, n.Backup)
			d.value("max_connections", o.MaxConnections, n.MaxConnections)
		})
	for _, b := range added {
		d.addf("%s: backend %s added", pool, backendText(b))
	}
	for _, b := range removed {
		d.addf("%s: backend %s removed", pool, backendText(b))
	}
	if len(added)+len(removed) == 0 && !slices.EqualFunc(old, now, func(o, n balance.BackendSpec) bool { return o.Addr == n.Addr }) {
		d.addf("%s: backends in another order", pool)
	}
}

func backendText(b balance.BackendSpec) string {
	if b.Name == b.Addr.String() {
		return b.Name
	}
	return fmt.Sprintf("%s (%s)", b.Name, b.Addr)
}
