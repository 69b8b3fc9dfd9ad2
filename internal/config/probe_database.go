package config

import (
	"strings"
	"time"

	"github.com/poise-lb/poise/health"
)

// databaseKeys are the keys of the checks that know a protocol of databases or
// name servers.
func databaseKeys(c *health.Spec) []key {
	return []key{
		section("dns",
			text("name", "domain name", none, &c.DNS.Name, domainName),
			text("type", "record type", "A", &c.DNS.Type, recordType),
			choice("rcode", "NOERROR", &c.DNS.RCode, themselves(health.RCodes...)),
			text("answer", "data of a record, or empty", `""`, &c.DNS.Answer, anyText),
			boolean("tcp", "false", &c.DNS.TCP),
		),
		section("postgres",
			text("user", "user name", none, &c.Postgres.User, loginName),
			secret("password", &c.Postgres.Password),
			text("database", "database name, or empty", `""`, &c.Postgres.Database, loginNameOrNothing),
			boolean("tls", "false", &c.Postgres.TLS),
			role(&c.Postgres.Role),
			durationOrOff("max_lag", "0s", &c.Postgres.MaxLag, time.Millisecond, year),
		),
		section("mysql",
			text("user", "user name", none, &c.MySQL.User, loginName),
			secret("password", &c.MySQL.Password),
			text("database", "database name, or empty", `""`, &c.MySQL.Database, loginNameOrNothing),
			boolean("tls", "false", &c.MySQL.TLS),
			role(&c.MySQL.Role),
			durationOrOff("max_lag", "0s", &c.MySQL.MaxLag, time.Second, year),
		),
		section("redis",
			text("user", "user name, or empty", `""`, &c.Redis.User, loginNameOrNothing),
			secret("password", &c.Redis.Password),
			boolean("tls", "false", &c.Redis.TLS),
			role(&c.Redis.Role),
			durationOrOff("max_lag", "0s", &c.Redis.MaxLag, time.Second, year),
			count("max_lag_bytes", "0", &c.Redis.MaxLagBytes),
		),
	}
}

// secret is a text that no message repeats.
func secret(name string, dst *health.Secret) key {
	return key{name: name, typ: "text, or empty", def: `""`, read: func(v *value) {
		switch {
		case !v.scalar(`"${DB_PASSWORD}"`):
		case strings.ContainsRune(v.text, 0):
			v.fail("has a zero byte, which no server takes; write a password without")
		default:
			*dst = health.Secret(v.text)
		}
	}, held: func() any { return *dst }}
}

// roles are the words for what a server must be, otherRoles those that some servers
// have for the same.
var (
	roles      = []meaning[health.Role]{{"any", health.AnyRole}, {"primary", health.Primary}, {"replica", health.Replica}}
	otherRoles = map[string]health.Role{"master": health.Primary, "slave": health.Replica}
)

// role is what the server must be.
func role(dst *health.Role) key {
	k := choice("role", "any", dst, roles)
	read := k.read
	k.read = func(v *value) {
		if r, known := otherRoles[v.text]; known {
			v.text = string(r)
		}
		read(v)
	}
	return k
}

func domainName(s string) string {
	if s == "" || (health.DNSQuery{Name: s}).Check() != nil {
		return "write a domain name, such as db.internal"
	}
	return ""
}

func recordType(s string) string {
	if s == "" || (health.DNSQuery{Name: ".", Type: s}).Check() != nil {
		return "write a type of records in capitals, such as A, AAAA, SOA or TXT"
	}
	return ""
}

// loginName is the name of a user or database. Their protocols end it with a zero
// byte, and no server has names as long as this.
func loginName(s string) string {
	if s == "" {
		return "write the name of a user"
	}
	return loginNameOrNothing(s)
}

func loginNameOrNothing(s string) string {
	if len(s) > 255 || strings.ContainsRune(s, 0) {
		return "write a name of at most 255 bytes, none of them zero"
	}
	return ""
}

// ruledDatabase applies the rules of the checks of this file, as ruled does.
func (p *pool) ruledDatabase(o *object, prefix string, c *health.Spec) {
	key := func(k string) string { return join(prefix, k) }
	switch c.Type {
	case "dns":
		switch {
		case c.DNS.Name == "":
			o.missing([]string{key("dns.name"), key("dns"), key("type")}, "a check of a DNS server asks for a name; write one, such as dns: {name: db.internal}")
		case c.DNS.Check() != nil:
			o.problem([]string{key("dns.answer"), key("dns.type"), key("dns.name")},
				"%s is not what a record of type %s says; write it as in a zone file, such as 10.0.0.1 for type: A", o.told(key("dns.answer"), quote(c.DNS.Answer)), o.told(key("dns.type"), c.DNS.Type))
		}
	case "postgres":
		ruledLogin(o, prefix, c.Type, c.Postgres.User)
		ruledLag(o, key("postgres"), c.Postgres.Role, c.Postgres.MaxLag > 0)
		if c.Postgres.TLS {
			p.refuseUnix(o, key("postgres.tls"), "is never encrypted by PostgreSQL")
		}
	case "mysql":
		ruledLogin(o, prefix, c.Type, c.MySQL.User)
		ruledLag(o, key("mysql"), c.MySQL.Role, c.MySQL.MaxLag > 0)
	case "redis":
		if c.Redis.User != "" && c.Redis.Password == "" {
			o.problem([]string{key("redis.user"), key("redis.password"), key("type")}, "a user cannot log in without a password; add redis.password, or remove the user")
		}
		ruledLag(o, key("redis"), c.Redis.Role, c.Redis.MaxLag > 0 || c.Redis.MaxLagBytes > 0)
	}
}

func ruledLogin(o *object, prefix, section, user string) {
	if user == "" {
		o.missing([]string{join(prefix, section+".user"), join(prefix, section), join(prefix, "type")},
			"the check logs in to a database; write the user, such as %s: {user: poise}", section)
	}
}

// ruledLag: a server that must be the primary is behind nobody.
func ruledLag(o *object, section string, role health.Role, limited bool) {
	if role == health.Primary && limited {
		o.problem([]string{join(section, "max_lag"), join(section, "max_lag_bytes"), join(section, "role")},
			"there is no lag with role: primary; set role: replica or any, or remove the limit")
	}
}
