package config

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4/balance"
)

// Discovery says where the backends of a pool come from besides those in
// Balance.Backends, and what they are like when they come.
type Discovery struct {
	Names          []Name
	Resolve        Resolve
	File           string // absolute path of a list of backends, read by Pool.ParseBackends; "" = none
	MaxConnections int    // of each backend of File that gives none
}

// Name is a backend that is given by name: each address found is a member.
type Name struct {
	Name string // what members are called, before "/" and their address
	SRV  bool   // look up SRV records: port, weight and priority come from them
	Host string // lower case, without a final dot
	Port uint16 // not of SRV
	// After is how many of the pool's Balance.Backends stand before it in the list.
	After int

	Weight         int // of each member; not of SRV
	Backup         bool
	MaxConnections int // of each member; 0 = no limit
}

// Resolve says how names are looked up.
type Resolve struct {
	Servers        []netip.AddrPort // none: those of the host, and its hosts file first
	MinTTL, MaxTTL time.Duration    // 1s to 24h; MinTTL <= MaxTTL
	Hold           time.Duration    // how long members stay when a server says there are none; 0 = not
}

// Items are the keys, below the pool, of the backends that are given by address and of
// those that are given by name: "backends[2]".
func (p Pool) Items() (addresses, names []string) {
	k := 0
	for i := range p.Balance.Backends {
		for ; k < len(p.Discovery.Names) && p.Discovery.Names[k].After <= i; k++ {
		}
		addresses = append(addresses, index("backends", i+k))
	}
	for i, n := range p.Discovery.Names {
		names = append(names, index("backends", n.After+i))
	}
	return addresses, names
}

// discoveryKeys are the keys of a pool that have to do with discovery.
func discoveryKeys(d *Discovery) []key {
	return []key{
		text("backends_file", "file path, or empty", `""`, &d.File, filePath),
		section("resolve",
			key{name: "servers", typ: "list of ip:port", def: theHosts, read: readServers(&d.Resolve.Servers)},
			duration("min_ttl", "1s", &d.Resolve.MinTTL, time.Second, 24*time.Hour),
			duration("max_ttl", "5m", &d.Resolve.MaxTTL, time.Second, 24*time.Hour),
			duration("hold", "10m", &d.Resolve.Hold, 0, 365*24*time.Hour),
		),
	}
}

func filePath(s string) string {
	if s != "" && (!path.IsAbs(s) || path.Clean(s) != s || !printable(s)) {
		return "write the absolute path of a file, plainly, such as /etc/poise/pg.list"
	}
	return ""
}

// readServers stores name servers: "ip:port", or an address alone for port 53.
func readServers(dst *[]netip.AddrPort) func(*value) {
	return func(v *value) {
		if !v.is(list, `["10.0.0.53:53"]`) {
			return
		}
		var servers []netip.AddrPort
		for _, item := range v.elements() {
			if !item.scalar("10.0.0.53:53") {
				continue
			}
			server, err := netip.ParseAddrPort(item.text)
			if a, alone := netip.ParseAddr(item.text); alone == nil {
				server, err = netip.AddrPortFrom(a, 53), nil
			}
			if err != nil || server.Port() == 0 || !unicast(server.Addr()) {
				item.fail("%s is not the address of a name server; write one such as 10.0.0.53, 10.0.0.53:5353 or [::1]:53", item.quoted())
				continue
			}
			servers = append(servers, netip.AddrPortFrom(server.Addr().Unmap(), server.Port()))
		}
		*dst = servers
	}
}

// readName stores an address that is a name with a port, or "srv:" and a name.
func (b *backend) readName(v *value) {
	n := Name{}
	host, srv := strings.CutPrefix(v.text, "srv:")
	if n.SRV = srv; !srv {
		i := strings.LastIndexByte(host, ':')
		port, ok := parsePort(host[i+1:])
		if !ok {
			v.fail("%s is not a port; write a number from 1 to 65535", quote(host[i+1:]))
			return
		}
		host, n.Port = host[:i], port
	}
	n.Host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !isHost(n.Host) {
		v.fail("%s is not a name that can be looked up; write one such as db.example.org:5432 or srv:_pg._tcp.example.org", v.quoted())
		return
	}
	b.name = n
}

// label is one label of a host name. Underscores are not of host names, but of
// service names, and of some container platforms' host names.
var label = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// isHost applies the bounds of RFC 1035 section 2.3.4.
func isHost(s string) bool {
	for l := range strings.SplitSeq(s, ".") {
		if !label.MatchString(l) {
			return false
		}
	}
	return len(s) <= 253
}

// Address returns the address as it is written.
func (n Name) Address() string {
	if n.SRV {
		return "srv:" + n.Host
	}
	return fmt.Sprintf("%s:%d", n.Host, n.Port)
}

// backendName completes a backend that is given by name.
func (p *pool) backendName(b backend) Name {
	n := b.name
	if n.Name = b.Name; n.Name == "" {
		n.Name = n.Host
	}
	n.After = len(p.Balance.Backends)
	n.Weight, n.Backup, n.MaxConnections = b.Weight, b.Backup, b.MaxConnections
	return n
}

// finishDiscovery applies the rules of discovery that concern several keys.
func (p *pool) finishDiscovery() {
	d := &p.Discovery
	if d.File != "" {
		d.MaxConnections = p.maxConnections
	}
	if r := d.Resolve; r.MinTTL > r.MaxTTL {
		p.problem([]string{"resolve.min_ttl", "resolve.max_ttl"}, "min_ttl is %s and max_ttl only %s; lower one or raise the other",
			p.told("resolve.min_ttl", short(r.MinTTL)), p.told("resolve.max_ttl", short(r.MaxTTL)))
	}
	if _, given := p.given["resolve"]; given && len(d.Names) == 0 {
		p.problem([]string{"resolve", "backends"}, "has no effect without a name in backends; remove it")
	}
}

// ParseBackends reads the content of Discovery.File: a YAML or JSON list as that
// of the key backends, or one backend a line:
//
//	ADDRESS [name=NAME] [weight=N] [max_connections=N] [backup]
//
// with comments after "#". Names are not looked up and refused, variables do not
// exist. A file without any entry is refused too, for whoever wrote it may not be
// done; "[]" is none. The error is Problems.
func (p Pool) ParseBackends(data []byte) ([]balance.BackendSpec, error) {
	src := &source{name: p.Discovery.File}
	r := &report{}
	top := position{src, 1, 1}
	read := pool{Pool: p, object: newObject(r, "", top, nil), maxConnections: p.Discovery.MaxConnections}
	read.Balance.Backends = nil
	var n *node
	if isYAML(data) {
		var ok bool
		if n, ok = build(r, src, data, func(string) (string, bool) { return "", false }); !ok {
			return nil, r.err()
		}
	} else {
		n = readLines(r, src, data)
	}
	if n == nil || n.kind == list && len(n.items) == 0 && !isYAML(data) {
		r.add(top, "backends", "the file lists no backend; write one a line, or [] for none")
		return nil, r.err()
	}
	if n.kind != list || len(n.items) > 0 {
		read.readBackends(&value{node: n, report: r, path: "backends"})
	}
	for i, b := range read.backends {
		switch {
		case b.name.Host != "":
			r.add(b.at, index("backends", i), "%s is a name; write the IP address, or move it to the key backends", quote(b.shown()))
		case b.Addr.Unix != "" && slices.ContainsFunc(append([]health.Spec{p.Check}, p.Check.All...), needsPort):
			r.add(b.at, index("backends", i), "what the pool's check asks cannot be asked of the socket %s; move it to a pool of its own", b.Addr.Unix)
		case b.Addr.Unix != "" && p.needsAddress():
			r.add(b.at, index("backends", i), "the socket %s cannot be in a pool for UDP, with source: client, or with tls that has no server_name; move it to a pool of its own", b.Addr.Unix)
		}
	}
	read.finishBackends()
	return read.Balance.Backends, r.err()
}

// needsPort reports whether a check cannot be made of a unix socket.
func needsPort(c health.Spec) bool { return c.Port != 0 || c.Datagrams() }

// needsAddress reports whether connections or datagrams to the pool's backends
// cannot be what they are to be on a unix socket.
func (p Pool) needsAddress() bool {
	return p.UDP || p.Transparent || p.TLS != nil && p.TLS.Verify && p.TLS.ServerName == ""
}

// bracketed begins a line with an IPv6 address, which a list does not.
var bracketed = regexp.MustCompile(`^\[[0-9A-Fa-f:.%]+\]:`)

// isYAML tells a list from lines by the first of them that says something.
func isYAML(data []byte) bool {
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		return line == "-" || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "---") ||
			line[0] == '{' || line[0] == '[' && !bracketed.MatchString(line)
	}
	return false
}

// readLines makes the nodes that a YAML list of the same backends would.
func readLines(r *report, src *source, data []byte) *node {
	out := &node{kind: list, at: position{src, 1, 1}}
	no := 0
	for line := range strings.Lines(string(data)) {
		no++
		line, _, _ = strings.Cut(line, "#")
		item := &node{kind: mapping}
		given := map[string]bool{}
		for i, word := range strings.Fields(line) {
			at := position{src, no, 1}
			key, text, has := strings.Cut(word, "=")
			switch {
			case i == 0:
				item.at = at
				key, text = "address", word
			case word == "backup":
				text = "true"
			case !has:
				r.add(at, "backends", "%s is no setting; write name=NAME, weight=N, max_connections=N or backup", quote(word))
				continue
			}
			if given[key] {
				r.add(at, "backends", "%s is given twice; keep one of them", quote(key))
				continue
			}
			given[key] = true
			item.pairs = append(item.pairs, pair{key, at, &node{kind: plain, text: text, at: at}})
		}
		if len(item.pairs) > 0 {
			out.items = append(out.items, item)
		}
	}
	return out
}
