package config

import (
	"slices"
	"sync"

	"github.com/poise-lb/poise/health"
)

// question is one item of a pool's checks: what to ask, without when.
type question struct {
	*object
	spec health.Spec
}

// readChecks stores what is asked together.
func (p *pool) readChecks(v *value) {
	if !v.is(list, "[{type: tcp}, {type: http}]") {
		return
	}
	p.checks = []question{}
	if len(v.items) == 0 {
		v.fail("an empty list; write at least one check, such as [{type: tcp}]")
	}
	for _, item := range v.elements() {
		q := question{object: newObject(v.report, item.path, item.at, nil)}
		keys := questionKeys(&q.spec)
		defaults(keys)
		if q.read(item.node, keys) {
			p.checks = append(p.checks, q)
		}
	}
}

// severalChecks reports whether the pool's checks are to be used rather than what
// its check asks. The one that is given closer to the pool wins.
func (p *pool) severalChecks() bool {
	const both = "cannot be together with the %s of check; move what that asks into the list, and leave in check when to ask"
	own, above := p.questionGiven(p.object), p.questionGiven(p.above)
	_, ownList := p.given["checks"]
	switch {
	case ownList && own != "":
		p.problem([]string{"checks"}, both, own)
	case ownList:
		return true
	case own == "" && p.has("checks"):
		if above != "" {
			p.problem([]string{"checks"}, both, above)
		}
		return true
	}
	return false
}

// questionGiven returns a key of check which o itself gives and which says what to
// ask, or "".
func (p *pool) questionGiven(o *object) string {
	for _, k := range questionNames() {
		if _, given := o.given["check."+k]; given {
			return k
		}
	}
	return ""
}

// questionNames are the keys of a question.
var questionNames = sync.OnceValue(func() []string {
	var names []string
	for _, k := range questionKeys(&health.Spec{}) {
		names = append(names, k.name)
	}
	return names
})

// finishQuestions applies the rules of what is asked, and makes several checks one.
func (p *pool) finishQuestions() {
	c := &p.Check
	c.Source = p.Source
	if !p.severalChecks() {
		p.ruled(p.object, "check", c)
		return
	}
	// What check itself asks, by default or by inheritance, is of no concern now.
	*c = health.Spec{
		Interval: c.Interval, FastInterval: c.FastInterval, DownInterval: c.DownInterval,
		Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall, InitialDown: c.InitialDown,
		Source: c.Source, Type: health.AllOf,
	}
	for _, q := range p.checks {
		p.ruled(q.object, "", &q.spec)
		if q.spec.Type == "none" {
			q.problem([]string{"type"}, "asks nothing and so adds nothing; remove it, or ask something")
		}
		c.All = append(c.All, q.spec)
	}
}

// ruled applies the rules of one question, whose keys are below prefix of o.
func (p *pool) ruled(o *object, prefix string, c *health.Spec) {
	q := asked{o, prefix, c}
	for _, check := range health.Checks {
		if section := check.Word; section != "tls" && q.gives(section) && c.Type != section { // tls is of several
			q.problem([]string{section, "type"}, "has no effect with type: %s; set %s: %s, or remove it", q.told(q.key("type"), c.Type), q.key("type"), section)
		}
	}
	q.ruleTLS()
	switch c.Type {
	case "http":
		q.ruleHTTP()
	case "expect":
		if len(c.Expect) == 0 {
			q.missing([]string{"expect", "type"}, `missing; write the steps, such as expect: [{send: "PING\r\n"}, {expect: "+PONG"}]`)
		}
	case "udp":
		q.ruleUDP()
	case "exec":
		c.Exec.Pool = p.Balance.Name
		if len(c.Exec.Argv) == 0 {
			q.missing([]string{"exec.command", "exec", "type"}, "missing; write the program to run, such as command: [/usr/local/bin/check-db]")
		}
	}
	p.ruledDatabase(o, prefix, c)
	if c.Datagrams() {
		p.refuseUnix(o, q.key("type"), "takes no datagrams")
	}
	if c.Port != 0 {
		p.refuseUnix(o, q.key("port"), "has no port")
	}
}

// asked is a question with where it is written.
type asked struct {
	*object
	prefix string // of its keys below the object
	*health.Spec
}

func (q asked) key(k string) string { return join(q.prefix, k) }

// gives reports whether the object itself gives a key of the question.
func (q asked) gives(k string) bool {
	_, given := q.given[q.key(k)]
	return given
}

// problem is the object's for keys of the question.
func (q asked) problem(keys []string, format string, args ...any) {
	q.object.problem(q.full(keys), format, args...)
}

// missing is the object's for keys of the question.
func (q asked) missing(keys []string, format string, args ...any) {
	q.object.missing(q.full(keys), format, args...)
}

func (q asked) full(keys []string) []string {
	full := make([]string, len(keys))
	for i, k := range keys {
		full[i] = q.key(k)
	}
	return full
}

// oneOf refuses keys that say the same twice.
func (q asked) oneOf(keys ...string) {
	for i, k := range keys {
		for _, before := range keys[:i] {
			if q.gives(k) && q.gives(before) {
				q.problem([]string{k}, "cannot be together with %s; keep one of them", q.key(before))
			}
		}
	}
}

func (q asked) ruleHTTP() {
	h := &q.HTTP
	q.oneOf("http.expect_body", "http.expect_body_regex")
	if h.Method == "HEAD" && h.ExpectBody+h.ExpectBodyRegex != "" {
		q.problem([]string{"http.expect_body", "http.expect_body_regex", "http.method"}, "the answer to HEAD has no body; use method: GET, or expect none")
	}
	switch { // of two the one is inherited, and was to be replaced
	case q.gives("http.expect_body") && h.ExpectBody != "":
		h.ExpectBodyRegex = ""
	case q.gives("http.expect_body_regex") && h.ExpectBodyRegex != "":
		h.ExpectBody = ""
	}
}

func (q asked) ruleUDP() {
	q.oneOf("udp.send", "udp.send_hex")
	q.oneOf("udp.expect", "udp.expect_hex", "udp.expect_regex")
	if q.UDP.Send == "" {
		q.missing([]string{"udp.send", "udp.send_hex", "udp", "type"}, `missing; write what to send, such as send: "ping"`)
	}
	if q.UDP.Expect == (health.Pattern{}) {
		q.missing([]string{"udp.expect", "udp.expect_hex", "udp.expect_regex", "udp", "type"},
			`missing; write what the answer must contain, such as expect: "pong": no answer to a datagram is no sign of health`)
	}
}

func (q asked) ruleTLS() {
	uses := q.UsesTLS()
	if q.gives("tls") && !uses {
		q.problem([]string{"tls", "type", q.Type + ".tls", q.Type + ".starttls"},
			"has no effect on a check without TLS; set %s: tls, or turn on TLS in what belongs to the type, or remove it", q.key("type"))
	}
	if q.gives("tls.alpn") && q.Type != "tls" && uses {
		q.problem([]string{"tls.alpn", "type"}, "has no effect with type: %s, which knows its own; remove it", q.told(q.key("type"), q.Type))
	}
	if q.gives("tls.ca") && q.TLS.NoVerify && q.TLS.CA != "" {
		q.problem([]string{"tls.ca", "tls.verify"}, "nothing is verified against it with verify: false; remove one of the two")
	}
}

// refuseUnix reports a question that cannot be asked of a unix socket.
func (p *pool) refuseUnix(o *object, key, why string) {
	if b := p.socket; b != nil {
		o.problem([]string{key}, "the socket %s at %s %s; move it to a pool of its own", b.path(), b.at, why)
	}
}

// refuseExec reports checks that run commands where that is not allowed.
func (p *pool) refuseExec(allowed bool) {
	runs := p.Check.Type == "exec" || slices.ContainsFunc(p.Check.All, func(s health.Spec) bool { return s.Type == "exec" })
	keys := []string{"check.type"}
	if p.Check.Type == health.AllOf {
		keys = []string{"checks"}
	}
	if runs && !allowed {
		p.problem(keys, "runs a command with the rights of the balancer; allow that with runtime: {allow_exec: true}, or use another type")
	}
}
