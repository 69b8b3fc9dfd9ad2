package config

import (
	"log/slog"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
)

// The tables of this file are every key there is. Adding one is a line here, a
// line in docs/config.md (a test compares the two), and where it depends on
// others a rule in service.go or pool.go.

// root is what the top level of the file holds besides settings.
type root struct {
	services, pools               *node // name -> service, name -> pool
	serviceDefaults, poolDefaults *node
	admin                         []listen // what admin.http claims
}

func fileKeys(f *File, r *root) []key {
	return []key{
		section("admin",
			text("socket", "socket path", "/run/poise/admin.sock", &f.Admin.Socket, socketPath),
			key{name: "http", typ: "ip:port, or empty for off", def: "127.0.0.1:9905", read: r.readAdminHTTP(&f.Admin.HTTP), show: func() string { return f.Admin.HTTP }},
			key{name: "hosts", typ: "list of host names", def: none, read: readAdminHosts(&f.Admin.Hosts), held: listed(&f.Admin.Hosts)},
			text("state", "file path, or empty", "/var/lib/poise/state.json", &f.Admin.State, statePath),
		),
		section("log",
			choice("level", "info", &f.Log.Level, levels),
			choice("format", "text", &f.Log.Format, themselves("text", "json")),
			text("access", "none, stdout or file path", "stdout", &f.Log.Access, accessTarget),
			choice("access_format", "poise", &f.Log.AccessFormat, themselves("poise", "tcplog", "json")),
		),
		section("runtime",
			number("workers", "0", &f.Runtime.Workers, 0, 1024),
			duration("pre_stop", "0s", &f.Runtime.PreStop, 0, time.Hour),
			duration("drain", "30s", &f.Runtime.Drain, 0, 7*24*time.Hour),
			boolean("allow_exec", "false", &f.Runtime.AllowExec),
		),
		section("cluster", clusterSecret(&f.Cluster.Secret)),
		named("services", required, &r.services),
		named("pools", none, &r.pools),
		section("defaults",
			named("services", none, &r.serviceDefaults),
			named("pools", none, &r.poolDefaults),
		),
	}
}

// named keeps a whole mapping for later: defaults are read before what inherits
// them, wherever they are written.
func named(name, def string, dst **node) key {
	return key{name: name, typ: "mapping", def: def, read: func(v *value) {
		if v.is(mapping, "{}") {
			*dst = v.node
		}
	}}
}

func serviceKeys(s *service) []key {
	t := &s.tcp
	keys := []key{
		{name: "listen", typ: "list of listen addresses", def: required, read: s.readListen},
		choice("protocol", "tcp", &s.protocol, []meaning[l4.Proto]{{"tcp", l4.TCP}, {"udp", l4.UDP}}, "http"),
		text("pool", "pool name", none, &s.Pool, isName),
		boolean("freebind", "false", &t.Freebind),
		count("max_connections", "0", &t.MaxConnections),
		section("timeouts",
			duration("connect", "2s", &t.Connect, time.Millisecond, time.Hour),
			duration("connect_total", "10s", &t.ConnectTotal, time.Millisecond, time.Hour),
			durationOrOff("idle", "10m", &t.Idle, time.Millisecond, year),
			duration("half_close", "30s", &t.HalfClose, time.Millisecond, year),
			duration("first_bytes", "5s", &t.FirstBytes, time.Millisecond, time.Hour),
		),
		section("keepalive", // bounds of the kernel: net/ipv4/tcp.c, MAX_TCP_KEEP*
			seconds("idle", "60s", &t.Keepalive.Idle, 32767*time.Second),
			seconds("interval", "10s", &t.Keepalive.Interval, 32767*time.Second),
			number("probes", "6", &t.Keepalive.Probes, 0, 127),
			durationOrOff("unanswered", "0s", &t.Keepalive.Unanswered, time.Second, year),
		),
		countFrom("buffer", "256k", &t.Buffer, 0, "1g"),
		number("retries", "2", &t.Retries, 0, 100),
		proxyInKeys(&t.Proxy),
		{name: "sni", typ: "mapping of server names to pools", def: none, read: s.readSNI},
		section("tls", tlsKeys(&s.tls, &t.MaxHandshakes)...).when(func() bool { return s.TLS != nil }),
		choice("starttls", "none", &t.StartTLS, starttls),
		section("udp", udpKeys(&s.udp)...),
	}
	keys = append(keys, admissionKeys(&s.Admit)...)
	return append(keys, later("http", "offload", "reuse")...)
}

func poolKeys(p *pool) []key {
	keys := []key{
		choice("balance", "least-conn", &p.Balance.Algorithm, algorithms()),
		section("hash",
			choice("key", "source", &p.Balance.Hash.Port, either("source", "source-port")),
			number("mask4", "32", &p.Balance.Hash.Mask4, 1, 32),
			number("mask6", "128", &p.Balance.Hash.Mask6, 1, 128),
			key{name: "bound", typ: "0, or factor 1 to 100", def: "0", read: readBound(&p.Balance.Hash.Bound), show: decimal(&p.Balance.Hash.Bound)},
		),
		{
			name: "backends", typ: "list of backends", def: none, read: p.readBackends,
			items: backendKeys(&backend{}), form: "[{address: ...}]",
		},
		count("max_connections", "0", &p.maxConnections),
		choice("on_down", "keep", &p.OnDownClose, either("keep", "close")),
		{name: "source", typ: "IP address, client, or empty", def: `""`, read: readSource(&p.Source, &p.Transparent), show: showSource(&p.Source, &p.Transparent)},
		section("tls", clientTLSKeys(p)...).when(func() bool { return p.TLS != nil }),
		countFrom("replay", "0", &p.Replay, 0, "64k"),
		section("check", checkKeys(&p.Check)...),
		{name: "checks", typ: "list of checks", def: none, read: p.readChecks, held: listed(&p.Check.All)},
		section("passive",
			number("failures", "5", &p.Passive.Failures, 0, 1000),
			duration("base", "10s", &p.Passive.Base, time.Millisecond, 24*time.Hour),
			duration("max", "5m", &p.Passive.Max, time.Millisecond, 24*time.Hour),
			number("max_percent", "50", &p.Passive.MaxPercent, 1, 100),
			number("half_open", "1", &p.Passive.HalfOpen, 1, 1000),
		),
	}
	keys = append(keys, discoveryKeys(&p.Discovery)...)
	keys = append(keys, policyKeys(p)...)
	return append(keys, proxyOutKeys(p)...)
}

func checkKeys(c *health.Spec) []key {
	return append([]key{
		duration("interval", "2s", &c.Interval, 10*time.Millisecond, 24*time.Hour),
		duration("fast_interval", "500ms", &c.FastInterval, 10*time.Millisecond, 24*time.Hour),
		duration("down_interval", "5s", &c.DownInterval, 10*time.Millisecond, 24*time.Hour),
		duration("timeout", "1s", &c.Timeout, time.Millisecond, time.Hour),
		number("rise", "2", &c.Rise, 1, 1000),
		number("fall", "3", &c.Fall, 1, 1000),
		choice("initial", "up", &c.InitialDown, either("up", "down")),
	}, questionKeys(c)...)
}

func backendKeys(b *backend) []key {
	return []key{
		{name: "address", typ: "ip:port, name:port, srv:name or unix:/path", def: required, read: b.readAddress},
		text("name", "backend name", theAddress, &b.Name, isName),
		number("weight", "100", &b.Weight, 0, 65535),
		boolean("backup", "false", &b.Backup),
		count("max_connections", fromPool, &b.MaxConnections),
	}
}

var levels = []meaning[slog.Level]{
	{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError},
}

// starttls are the words for who begins TLS within a connection.
var starttls = either("none", "postgres")

// row is one key under its full path, with NAME for a name and [] for an item.
type row struct {
	path string
	key
}

// catalogue lists every key, sections included, in the order of the tables.
func catalogue() []row {
	var rows []row
	add := func(path string, k key) { rows = append(rows, row{path, k}) }
	walk(fileKeys(&File{}, &root{}), "", add)
	walk(serviceKeys(&service{}), "services.NAME", add)
	walk(poolKeys(&pool{}), "pools.NAME", add)
	return rows
}
