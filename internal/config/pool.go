package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/cert"
)

// pool is a Pool while it is read.
type pool struct {
	Pool
	*object
	ab             balance.AB
	sticky         balance.Sticky
	tls            cert.ClientSpec
	startTLS       bool
	stickyOn       bool
	checks         []question
	maxConnections int       // of each backend that gives none
	backends       []backend // nil: not given
	socket         *backend  // the first that is a unix socket
}

// backend is one entry of a pool's list.
type backend struct {
	balance.BackendSpec
	name    Name // instead of Addr; zero = none
	at      position
	weighed bool   // a weight is given
	written string // the address, if it comes from a variable
	label   string // the name, as far as it may be told
}

// shown is the address as far as it may be told.
func (b backend) shown() string {
	switch {
	case b.written != "":
		return b.written
	case b.name.Host != "":
		return b.name.Address()
	}
	return b.Addr.String()
}

// path is that of a unix socket, as far as it may be told.
func (b backend) path() string { return strings.TrimPrefix(b.shown(), "unix:") }

// inherit marks a backend that gives no max_connections of its own.
const inherit = -1

func (p *pool) readBackends(v *value) {
	if !v.is(list, v.listOr("[10.0.0.1:5432]")) {
		return
	}
	p.backends = []backend{}
	if len(v.items) == 0 {
		v.fail("an empty list; write at least one backend, such as [10.0.0.1:5432]")
	}
	for _, item := range v.elements() {
		b := backend{at: item.at}
		keys := backendKeys(&b)
		defaults(keys)
		b.MaxConnections = inherit
		switch item.kind {
		case mapping:
			o := newObject(v.report, item.path, item.at, nil)
			if o.read(item.node, keys) && !o.has("address") {
				o.problem([]string{"address"}, "missing; write address: 10.0.0.1:5432")
			}
			b.label = o.told("name", b.Name)
			if b.weighed = o.has("weight") && !o.refused("weight"); b.name.SRV && o.has("weight") {
				o.problem([]string{"weight", "address"}, "has no effect on what SRV records give a weight; remove it")
			}
		case plain, quoted:
			b.readAddress(item)
		default:
			item.fail(`is %s, and must be an address such as 10.0.0.1:5432, or a mapping {address: "10.0.0.1:5432"}`, item.kind)
		}
		p.backends = append(p.backends, b)
	}
}

// readAddress stores "ip:port", "unix:/path", "name:port" or "srv:name".
func (b *backend) readAddress(v *value) {
	if !v.scalar("10.0.0.1:5432") {
		return
	}
	if v.expanded {
		b.written = v.written
	}
	if file, ok := strings.CutPrefix(v.text, "unix:"); ok {
		if !path.IsAbs(file) || path.Clean(file) != file || !printable(file) || len(file) > maxSocketPath {
			v.fail("%s is not the path of a socket; write unix: and an absolute path of at most %d bytes, such as unix:/run/app.sock",
				quote(file), maxSocketPath)
			return
		}
		b.Addr = balance.Address{Unix: file}
		return
	}
	e, isName, problem := parseEndpoint(v.text, false)
	switch {
	case isName:
		b.readName(v)
	case problem != "":
		v.fail("%s", problem)
	case !e.addr.IsValid():
		v.fail(`%s has no address; write "address:port"`, v.quoted())
	case !unicast(e.addr):
		v.fail("%s is not the address of one host; write one to connect to", e.addr)
	default:
		b.Addr = balance.Address{AddrPort: netip.AddrPortFrom(e.addr, e.lo)}
	}
}

// unicast reports whether an address can be one end of a connection.
func unicast(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// finish applies the rules that concern several keys and completes the specs.
func (p *pool) finish() {
	if p.backends == nil && !p.has("backends") && p.Discovery.File == "" {
		p.problem([]string{"backends", "backends_file"}, "missing; a pool needs at least one backend, such as backends: [10.0.0.1:5432]")
	}
	p.finishBackends()
	p.finishDiscovery()
	p.finishCheck()
	p.finishPolicy()
	p.finishTLS()
	p.finishProxy()
	p.finishEffects()
	if _, given := p.given["hash"]; given && p.Balance.AB != nil && !p.Balance.ByHash() {
		p.problem([]string{"hash", "ab"}, "has no effect with ab of %s and %s; compare with maglev, or remove it", p.told("ab.a", p.ab.A), p.told("ab.b", p.ab.B))
	} else if given && !p.Balance.ByHash() {
		p.problem([]string{"hash", "balance"}, "has no effect with balance: %s; set balance: maglev, or remove it", p.told("balance", p.Balance.Algorithm))
	}
	p.Passive.Checked = p.Check.Type != "none"
	if ps := &p.Passive; ps.Base > ps.Max {
		p.problem([]string{"passive.base", "passive.max"}, "an ejection starts at %s and may last only %s; lower base or raise max",
			p.told("passive.base", short(ps.Base)), p.told("passive.max", short(ps.Max)))
	}
}

// finishBackends names the backends and looks for duplicates and for addresses
// that do not fit the rest of the pool.
func (p *pool) finishBackends() {
	names, addresses := map[string]position{}, map[string]position{}
	if i := slices.IndexFunc(p.backends, func(b backend) bool { return b.Addr.Unix != "" }); i >= 0 {
		p.socket = &p.backends[i]
	}
	for i, b := range p.backends {
		key := index(join(p.path, "backends"), i)
		address := b.Addr.String()
		switch {
		case b.name.Host != "":
			address = b.name.Address()
		case b.Addr == (balance.Address{}):
			continue // reported when it was read
		}
		if first, dup := addresses[address]; dup {
			p.add(b.at, key, "backend %s is in this pool already, at %s; remove one, or give it more weight", b.shown(), first)
			continue
		}
		addresses[address] = b.at
		called := cmp.Or(b.Name, address)
		if first, dup := names[called]; dup {
			p.add(b.at, key, "the name %s is taken in this pool, at %s; give each backend its own", cmp.Or(b.label, b.shown()), first)
			continue
		}
		names[called] = b.at
		if b.MaxConnections == inherit {
			b.MaxConnections = p.maxConnections
		}
		if b.name.Host != "" {
			p.Discovery.Names = append(p.Discovery.Names, p.backendName(b))
			continue
		}
		b.Name = called
		if s := p.Source; b.Addr.Unix == "" && s.IsValid() && s.Is4() != b.Addr.Addr().Is4() {
			p.add(b.at, key, "%s cannot be reached from source %s; both must be IPv4, or both IPv6", b.shown(), p.told("source", s.String()))
		}
		if !p.Check.InitiallyUp() {
			b.Initial = balance.Down
		}
		p.Balance.Backends = append(p.Balance.Backends, b.BackendSpec)
	}
}

func (p *pool) finishCheck() {
	c := &p.Check
	p.finishQuestions()
	if c.Type == "none" && c.InitialDown {
		p.problem([]string{"check.initial", "check.type"}, "with type: none nothing would ever bring a backend up; use initial: up, or a check")
	}
	if c.FastInterval > c.Interval {
		if _, given := p.given["check.fast_interval"]; given {
			p.problem([]string{"check.fast_interval", "check.interval"}, "%s is slower than interval, %s; lower it",
				p.told("check.fast_interval", short(c.FastInterval)), p.told("check.interval", short(c.Interval)))
		}
		c.FastInterval = c.Interval
	}
}

// factor is how readBound's number is written.
var factor = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// readBound stores the factor of bounded load: 0, or from 1.
func readBound(dst *float64) func(*value) {
	return func(v *value) {
		if !v.unquoted("1.25") {
			return
		}
		f, err := strconv.ParseFloat(v.text, 64)
		if !factor.MatchString(v.text) || err != nil || f != 0 && (f < 1 || f > 100) {
			v.fail("%s is not a load factor; write 0 for off, or from 1 to 100, such as 1.25", v.quoted())
			return
		}
		*dst = f
	}
}

// readSource stores the local address towards backends, or that it is the client's.
func readSource(dst *netip.Addr, transparent *bool) func(*value) {
	return func(v *value) {
		if !v.scalar("10.0.0.9") {
			return
		}
		a, err := netip.ParseAddr(v.text)
		switch {
		case v.text == "":
			*dst, *transparent = netip.Addr{}, false
		case v.text == "client":
			*dst, *transparent = netip.Addr{}, true
		case err != nil || a.Zone() != "" || !unicast(a):
			v.fail("%s is not an IP address of a host; write one of this host, client, or nothing", v.quoted())
		default:
			*dst, *transparent = a.Unmap(), false
		}
	}
}

func showSource(a *netip.Addr, transparent *bool) func() string {
	return func() string {
		switch {
		case *transparent:
			return "client"
		case a.IsValid():
			return a.String()
		}
		return ""
	}
}

// readStatus stores the accepted statuses of an HTTP check.
func readStatus(dst *[]health.StatusRange) func(*value) {
	return func(v *value) {
		if !v.scalar(`"200-399"`) {
			return
		}
		ranges, err := health.ParseStatusRanges(v.text)
		if err != nil {
			v.fail("%s", strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
			return
		}
		*dst = slices.Clip(ranges)
	}
}
