package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
)

// check says what is asked of backends, and when their state changes.
func (e *explanation) check(c health.Spec) {
	if c.Type == "none" {
		e.line("check", "%s", e.of("check.type", "none"))
		return
	}
	questions, keys := []health.Spec{c}, []string{"check"}
	if c.Type == health.AllOf {
		questions, keys = c.All, nil
		for i := range questions {
			keys = append(keys, fmt.Sprintf("checks[%d]", i))
		}
	}
	var asked []string
	for i, q := range questions {
		what := e.of(keys[i]+".type", q.Type)
		if q.Port != 0 {
			what += fmt.Sprintf(" on port %s", e.of(keys[i]+".port", fmt.Sprint(q.Port)))
		}
		asked = append(asked, what)
	}
	e.line("check", "%s every %s, %s when the state may change, %s while down; each within %s", strings.Join(asked, " and "),
		e.of("check.interval", config.Written(c.Interval)), e.of("check.fast_interval", config.Written(cmp.Or(c.FastInterval, c.Interval))),
		e.of("check.down_interval", config.Written(cmp.Or(c.DownInterval, c.Interval))), e.of("check.timeout", config.Written(c.Timeout)))
	for i, q := range questions {
		if parts := (&question{e, keys[i]}).parts(q); len(parts) > 0 {
			e.line("", "%s", e.of(keys[i]+".type", q.Type)+": "+strings.Join(parts, ", "))
		}
	}
	first := "up"
	if !c.InitiallyUp() {
		first = "down"
	}
	e.line("", "down after %s, up after %s passed, %s before the first verdict",
		e.counted("check.fall", c.Fall, "failure"), e.of("check.rise", fmt.Sprint(c.Rise)), e.of("check.initial", first))
}

// A question is one check of a pool while it is explained; the key is the one that its
// own keys are below.
type question struct {
	*explanation
	key string
}

// below is what may be told of the value of a key of the question.
func (q *question) below(key, text string) string { return q.of(q.key+"."+key, text) }

// given is a part with the text of a key, or nothing if the text is empty.
func (q *question) given(format, key, text string) []string {
	if text == "" {
		return nil
	}
	return []string{fmt.Sprintf(format, q.below(key, text))}
}

// pattern is what an answer has to contain.
func (q *question) pattern(section string, p health.Pattern) string {
	if p.Regex != "" {
		return "what matches " + q.below(section+".expect_regex", plainly(p.Regex))
	}
	return q.below(section+".expect", q.below(section+".expect_hex", strconv.Quote(p.Text)))
}

// parts say what the question asks and what it expects. Passwords are left out, and so
// is what may hold one: header values, arguments, and what is sent.
func (q *question) parts(c health.Spec) (parts []string) {
	add := func(more ...string) { parts = append(parts, more...) }
	tls := false
	switch c.Type {
	case "tls":
		tls = true
	case "http":
		tls = c.HTTP.TLS
		add(q.http(c.HTTP)...)
	case "grpc":
		tls = c.GRPC.TLS
		what := "the server as a whole"
		if c.GRPC.Service != "" {
			what = "service " + q.below("grpc.service", c.GRPC.Service)
		}
		add("the health of " + what)
		add(q.given("host %s", "grpc.host", c.GRPC.Host)...)
	case "expect":
		add("a conversation of " + plural.Of(len(c.Expect), "step"))
	case "udp":
		add(fmt.Sprintf("sends %s", q.below("udp.send", q.below("udp.send_hex", plural.Of(len(c.UDP.Send), "byte")))))
		add("expects " + q.pattern("udp", c.UDP.Expect))
	case "smtp":
		tls = c.SMTP.StartTLS
		add(q.given("goes by the name %s", "smtp.name", c.SMTP.Name)...)
	case "exec":
		add("runs " + q.below("exec.command[0]", c.Exec.Argv[0]))
		if n := len(c.Exec.Argv) - 1; n > 0 {
			add("with " + plural.Of(n, "argument"))
		}
	case "dns":
		add(q.dns(c.DNS)...)
	case "postgres":
		tls = c.Postgres.TLS
		add(q.login("postgres", c.Postgres.User, c.Postgres.Password, c.Postgres.Database)...)
		add(q.replication("postgres", c.Postgres.Role, c.Postgres.MaxLag > 0, config.Written(c.Postgres.MaxLag))...)
	case "mysql":
		tls = c.MySQL.TLS
		add(q.login("mysql", c.MySQL.User, c.MySQL.Password, c.MySQL.Database)...)
		add(q.replication("mysql", c.MySQL.Role, c.MySQL.MaxLag > 0, config.Written(c.MySQL.MaxLag))...)
	case "redis":
		tls = c.Redis.TLS
		if c.Redis.Password != "" {
			add(q.login("redis", cmp.Or(c.Redis.User, "the default user"), c.Redis.Password, "")...)
		}
		add(q.replication("redis", c.Redis.Role, c.Redis.MaxLag > 0, config.Written(c.Redis.MaxLag))...)
		if n := c.Redis.MaxLagBytes; n > 0 {
			add(q.counted(q.key+".redis.max_lag_bytes", n, "byte") + " behind at most")
		}
	}
	if tls {
		add(q.tls(c.TLS)...)
	}
	return parts
}

func (q *question) http(h health.HTTP) []string {
	parts := []string{q.below("http.method", cmp.Or(h.Method, "GET")) + " " + q.below("http.path", cmp.Or(h.Path, "/"))}
	if h.Version == 2 {
		parts[0] += " by " + q.below("http.version", "HTTP/2")
	}
	parts = append(parts, q.given("host %s", "http.host", h.Host)...)
	for i, header := range h.Headers {
		if i == 0 {
			parts = append(parts, "with "+plural.Noun(len(h.Headers) == 1, "header")+" "+header.Name)
		} else {
			parts = append(parts, header.Name)
		}
	}
	var ranges []string
	for _, r := range h.ExpectStatus {
		ranges = append(ranges, r.String())
	}
	parts = append(parts, "expects status "+q.below("http.expect_status", strings.Join(ranges, ",")))
	switch {
	case h.ExpectBody != "":
		parts = append(parts, "a body with "+q.below("http.expect_body", strconv.Quote(h.ExpectBody)))
	case h.ExpectBodyRegex != "":
		parts = append(parts, "a body with what matches "+q.below("http.expect_body_regex", plainly(h.ExpectBodyRegex)))
	}
	return parts
}

func (q *question) dns(d health.DNSQuery) []string {
	over := "UDP"
	if d.TCP {
		over = "TCP"
	}
	parts := []string{
		fmt.Sprintf("asks for %s of %s over %s", q.below("dns.type", cmp.Or(d.Type, "A")), q.below("dns.name", d.Name), q.below("dns.tcp", over)),
		"expects " + q.below("dns.rcode", cmp.Or(d.RCode, "NOERROR")),
	}
	return append(parts, q.given("a record that says %s", "dns.answer", plainly(d.Answer))...)
}

func (q *question) login(section, user string, password health.Secret, database string) []string {
	login := "logs in as " + q.below(section+".user", plainly(user))
	if password != "" {
		login += " with a password"
	}
	if database != "" {
		login += " to database " + q.below(section+".database", plainly(database))
	}
	return []string{login}
}

// replication is what the role of a server has to be, and how far it may be behind.
func (q *question) replication(section string, role health.Role, limited bool, lag string) (parts []string) {
	if role != health.AnyRole {
		parts = append(parts, "has to be a "+q.below(section+".role", string(role)))
	}
	if limited {
		parts = append(parts, q.below(section+".max_lag", lag)+" behind at most")
	}
	return parts
}

func (q *question) tls(t health.TLS) []string {
	parts := append([]string{"over TLS"}, q.given("named %s", "tls.server_name", t.ServerName)...)
	if t.NoVerify {
		parts = append(parts, q.below("tls.verify", "not verified"))
	} else {
		parts = append(parts, "verified by "+q.below("tls.ca", cmp.Or(t.CA, "the system's authorities")))
	}
	if len(t.ALPN) > 0 {
		parts = append(parts, "for "+strings.Join(q.items(q.key+".tls.alpn", t.ALPN), " or "))
	}
	return parts
}
