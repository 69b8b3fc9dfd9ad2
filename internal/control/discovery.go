package control

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/resolve"
	"github.com/poise-lb/poise/l4/balance"
)

// discovery finds the backends that the configuration does not give by address:
// those behind names, and those listed in files.
type discovery struct {
	// Set once.
	log   *slog.Logger
	names *resolve.Resolver
	files *resolve.Files[[]balance.BackendSpec]
	news  chan struct{} // capacity 1: something has been found since it was read
}

func newDiscovery(log *slog.Logger) *discovery {
	x := &discovery{log: log, news: make(chan struct{}, 1)}
	x.names = resolve.New(x.nameChanged)
	x.files = resolve.NewFiles(x.fileChanged)
	return x
}

func (x *discovery) close() {
	x.names.Close()
	x.files.Close()
}

// firstLookup is how long a start or a reload waits for names that nobody has
// asked for yet: better a moment late than with a pool that refuses everybody for
// that moment, and better with an empty pool than never.
const firstLookup = time.Second

// prepare has the names and files of a configuration watched beside those of the one
// that runs, until commit drops the latter. Files have been read when it returns,
// names looked up if that was quick. commit reads nothing and waits for nothing.
func (x *discovery) prepare(ctx context.Context, old, pools []config.Pool) (commit func()) {
	var files []resolve.FileTarget[[]balance.BackendSpec]
	for _, p := range pools {
		if path := p.Discovery.File; path != "" {
			files = append(files, resolve.FileTarget[[]balance.BackendSpec]{Key: p.Balance.Name, Path: path, Parse: p.ParseBackends})
		}
	}
	swap := x.files.Prepare(files)
	names := nameTargets(pools)
	x.names.Set(append(slices.Clone(names), nameTargets(old)...)) // of two with one key the first counts
	ctx, cancel := context.WithTimeout(ctx, firstLookup)
	defer cancel()
	x.names.Settle(ctx)
	return func() {
		swap()
		x.names.Set(names)
	}
}

// nameTargets is how the names of a configuration are looked up.
func nameTargets(pools []config.Pool) (names []resolve.Target) {
	for _, p := range pools {
		r := p.Discovery.Resolve
		for _, n := range p.Discovery.Names {
			names = append(names, resolve.Target{
				Key:     nameKey(p, n),
				Servers: r.Servers,
				Limits:  resolve.Limits{MinTTL: r.MinTTL, MaxTTL: r.MaxTTL, Hold: r.Hold},
			})
		}
	}
	return names
}

// Unresolved looks all names of a configuration up once, at the same time, and
// returns a warning for each that leads to no address now.
func Unresolved(pools []config.Pool) (warnings []string) {
	// One server has a second for its answer: time for one that is silent, and another.
	ctx, cancel := context.WithTimeout(context.Background(), 2*firstLookup+firstLookup/2)
	defer cancel()
	names := resolve.New(func(resolve.Key, resolve.Status) {})
	defer names.Close()
	names.Set(nameTargets(pools))
	names.Settle(ctx)
	for _, p := range pools {
		for _, n := range p.Discovery.Names {
			st, _ := names.Status(nameKey(p, n))
			switch {
			case len(st.Members) > 0:
			case st.Lookups == 0:
				warnings = append(warnings, fmt.Sprintf("pools.%s.backends: no server has answered for %s yet", p.Balance.Name, n.Address()))
			default:
				warnings = append(warnings, fmt.Sprintf("pools.%s.backends: %s has no address now: %s", p.Balance.Name, n.Address(), st.Detail))
			}
		}
	}
	return warnings
}

func nameKey(p config.Pool, n config.Name) resolve.Key {
	k := resolve.Key{Owner: p.Balance.Name, Name: n.Host}
	if n.SRV {
		k.Kind = resolve.SRV
	}
	return k
}

// backends lists all backends that a configured pool has now, in the order in
// which the configuration gives them and what they come from. What it gives by
// address stays what it is, whatever else leads to the same address.
func (x *discovery) backends(p config.Pool) []balance.BackendSpec {
	list := make([]balance.BackendSpec, 0, len(p.Balance.Backends))
	addrs, called := map[balance.Address]bool{}, map[string]bool{}
	for _, b := range p.Balance.Backends {
		addrs[b.Addr], called[b.Name] = true, true
	}
	add := func(b balance.BackendSpec) {
		if addrs[b.Addr] {
			return
		}
		if called[b.Name] {
			b.Name += "/" + b.Addr.String()
		}
		addrs[b.Addr], called[b.Name] = true, true
		list = append(list, b)
	}
	names := p.Discovery.Names
	for i := range len(p.Balance.Backends) + 1 {
		for ; len(names) > 0 && names[0].After == i; names = names[1:] {
			for _, b := range x.members(p, names[0]) {
				add(b)
			}
		}
		if i < len(p.Balance.Backends) {
			list = append(list, p.Balance.Backends[i])
		}
	}
	if p.Discovery.File != "" {
		st, _ := x.files.Status(p.Balance.Name)
		for _, b := range st.Value {
			add(b)
		}
	}
	return list
}

// members makes backends of the addresses of a name.
func (x *discovery) members(p config.Pool, n config.Name) (list []balance.BackendSpec) {
	st, _ := x.names.Status(nameKey(p, n))
	for _, m := range st.Members {
		if p.Source.IsValid() && p.Source.Is4() != m.Addr.Is4() {
			continue // cannot be reached from there
		}
		b := balance.BackendSpec{
			Addr:           balance.Address{AddrPort: netip.AddrPortFrom(m.Addr, n.Port)},
			Weight:         n.Weight,
			Backup:         n.Backup,
			MaxConnections: n.MaxConnections,
		}
		if n.SRV {
			b.Addr.AddrPort = netip.AddrPortFrom(m.Addr, m.Port)
			b.Weight = max(int(m.Weight), 1)                            // RFC 2782: 0 is a very small chance, not none
			b.Backup = n.Backup || m.Priority != st.Members[0].Priority // sorted: the first is the lowest
		}
		b.Name = n.Name + "/" + b.Addr.String()
		if !p.Check.InitiallyUp() {
			b.Initial = balance.Down
		}
		list = append(list, b)
	}
	return list
}

// nameChanged tells that a name leads elsewhere, that it is known less well, or that
// it has led nowhere from the start.
// It runs on the name's goroutine.
func (x *discovery) nameChanged(key resolve.Key, st resolve.Status) {
	log := x.log.With("pool", key.Owner, "name", key.Name, "addresses", len(st.Members), "by", "resolver")
	switch st.State {
	case resolve.Resolved:
		log.Info("name is resolved")
	case resolve.Stale:
		log.Warn("name cannot be resolved, its backends stay", "reason", st.Detail)
	case resolve.Held:
		log.Warn("name has no address any more, its backends stay for the hold time", "reason", st.Detail, "until", st.Until.Format(time.RFC3339))
	case resolve.Unresolved:
		log.Warn("name leads to no address: the pool has no backend of it", "reason", st.Detail)
	}
	x.tell()
}

// fileChanged tells of other content. It runs on the watcher's goroutine or on
// that of a reload.
func (x *discovery) fileChanged(pool string, st resolve.FileStatus[[]balance.BackendSpec]) {
	if st.Detail != "" {
		x.log.Error("backends_file is not used as it is", "pool", pool, "backends", len(st.Value), "by", "resolver", "reason", st.Detail)
	} else {
		x.log.Info("backends_file is read", "pool", pool, "backends", len(st.Value), "by", "resolver")
	}
	x.tell()
}

func (x *discovery) tell() {
	select {
	case x.news <- struct{}{}:
	default:
	}
}

// sources describes where the backends of a configured pool come from, and how
// that is.
func (x *discovery) sources(p config.Pool) (list []admin.Source) {
	for _, n := range p.Discovery.Names {
		st, _ := x.names.Status(nameKey(p, n))
		list = append(list, admin.Source{
			Name: n.Address(), State: st.State.String(), Reason: st.Detail,
			Backends: len(st.Members), Since: st.Since, At: st.At, Next: st.Next,
		})
	}
	if f := p.Discovery.File; f != "" {
		st, _ := x.files.Status(p.Balance.Name)
		s := admin.Source{Name: f, State: "read", Reason: st.Detail, Backends: len(st.Value), Since: st.Since}
		switch {
		case !st.Good:
			s.State = "unresolved"
		case st.Detail != "":
			s.State = "stale"
		}
		list = append(list, s)
	}
	return list
}
