package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/poise-lb/poise/health"
)

// This file has the keys of what a check asks; when it asks is in schema.go.

// checkTypes are the words for what can be asked.
func checkTypes() []meaning[string] {
	var words []string
	for _, c := range health.Checks {
		words = append(words, c.Word)
	}
	return themselves(words...)
}

// questionKeys are the keys that check and the items of checks have in common.
func questionKeys(c *health.Spec) []key {
	return append([]key{
		choice("type", "tcp", &c.Type, checkTypes()),
		number("port", "0", &c.Port, 0, 65535),
		section("tls",
			text("server_name", "host name, or empty", `""`, &c.TLS.ServerName, plainHost),
			text("ca", "file path, or empty", `""`, &c.TLS.CA, pathOrNothing),
			key{name: "verify", typ: "boolean", def: "true", read: readNegated(&c.TLS.NoVerify), show: func() string { return strconv.FormatBool(!c.TLS.NoVerify) }},
			key{name: "alpn", typ: "list of protocols", def: none, read: readALPN(&c.TLS.ALPN), held: listed(&c.TLS.ALPN)},
		),
		section("http",
			text("path", "URL path", "/health", &c.HTTP.Path, urlPath),
			choice("method", "GET", &c.HTTP.Method, themselves("GET", "HEAD", "OPTIONS")),
			text("host", "host name, or empty", `""`, &c.HTTP.Host, hostHeader),
			key{name: "headers", typ: "mapping of header fields", def: none, read: readHeaders(&c.HTTP.Headers), held: listed(&c.HTTP.Headers)},
			boolean("tls", "false", &c.HTTP.TLS),
			choice("version", "1.1", &c.HTTP.Version, []meaning[int]{{"1.1", 1}, {"2", 2}}),
			key{name: "expect_status", typ: "list of statuses", def: `"200-399"`, read: readStatus(&c.HTTP.ExpectStatus), held: listed(&c.HTTP.ExpectStatus)},
			text("expect_body", "text, or empty", `""`, &c.HTTP.ExpectBody, anyText),
			text("expect_body_regex", "regular expression, or empty", `""`, &c.HTTP.ExpectBodyRegex, regexOrNothing),
		),
		section("grpc",
			text("service", "service name, or empty", `""`, &c.GRPC.Service, serviceName),
			text("host", "host name, or empty", `""`, &c.GRPC.Host, hostHeader),
			boolean("tls", "false", &c.GRPC.TLS),
		),
		{name: "expect", typ: "list of steps", def: none, read: readSteps(&c.Expect), held: listed(&c.Expect)},
		section("udp",
			append(sendKeys(&c.UDP.Send, &c.UDP.Hex), patternKeys(&c.UDP.Expect)...)...,
		),
		section("smtp",
			text("name", "host name, or empty", `""`, &c.SMTP.Name, mailName),
			boolean("starttls", "false", &c.SMTP.StartTLS),
		),
		section("exec",
			key{name: "command", typ: "list: absolute path, arguments", def: none, read: readCommand(&c.Exec.Argv), held: listed(&c.Exec.Argv)},
		),
	}, databaseKeys(c)...)
}

// sendKeys are the two ways to write what is sent. It is not shown: a password may be
// in it.
func sendKeys(dst *string, isHex *bool) []key {
	return []key{
		{name: "send", typ: "text", def: none, read: func(v *value) {
			if s := v.filled(notEmpty); s != "" {
				*dst, *isHex = s, false
			}
		}, held: func() any { return textOf(*dst, !*isHex) }},
		{name: "send_hex", typ: "hex digits", def: none, read: func(v *value) {
			if s := v.hex(); s != "" {
				*dst, *isHex = s, true
			}
		}, held: func() any { return textOf(*dst, *isHex) }},
	}
}

// patternKeys are the three ways to write what is expected.
func patternKeys(dst *health.Pattern) []key {
	return []key{
		{name: "expect", typ: "text", def: none, read: func(v *value) {
			if s := v.filled(notEmpty); s != "" {
				*dst = health.Pattern{Text: s}
			}
		}, show: func() string { return textOf(dst.Text, !dst.Hex) }},
		{name: "expect_hex", typ: "hex digits", def: none, read: func(v *value) {
			if s := v.hex(); s != "" {
				*dst = health.Pattern{Text: s, Hex: true}
			}
		}, show: func() string { return fmt.Sprintf("% x", textOf(dst.Text, dst.Hex)) }},
		{name: "expect_regex", typ: "regular expression", def: none, read: func(v *value) {
			if s := v.filled(regex); s != "" {
				*dst = health.Pattern{Regex: s}
			}
		}, show: func() string { return dst.Regex }},
	}
}

// filled is the text that the value is if check accepts it, as the constructor text
// does, else "".
func (v *value) filled(check func(string) string) (s string) {
	text("", "", "", &s, check).read(v)
	return s
}

// textOf is the text under the one of two keys that it is written as.
func textOf(s string, written bool) string {
	if !written {
		return ""
	}
	return s
}

func readNegated(dst *bool) func(*value) {
	return func(v *value) {
		yes := !*dst
		boolean("", "", &yes).read(v)
		*dst = !yes
	}
}

// hexDigits are pairs of digits, blanks between any.
var hexDigits = regexp.MustCompile(`^( *[0-9A-Fa-f]{2})+ *$`)

// hex is the bytes that the value's digits stand for, or "" if it has others.
func (v *value) hex() string {
	if !v.scalar(`"50 49 4e 47"`) {
		return ""
	}
	if !hexDigits.MatchString(v.text) {
		v.fail(`%s is not hex; write pairs of hex digits, such as "50 49 4e 47"`, v.quoted())
		return ""
	}
	b, _ := hex.DecodeString(strings.ReplaceAll(v.text, " ", ""))
	return string(b)
}

// maxSteps is more than any conversation of a check has.
const maxSteps = 100

func readSteps(dst *[]health.Step) func(*value) {
	return func(v *value) {
		if !v.is(list, `[{send: "PING\r\n"}, {expect: "+PONG"}]`) {
			return
		}
		steps := make([]health.Step, 0, len(v.items))
		waits := false
		for _, item := range v.elements() {
			step := health.Step{}
			o := newObject(v.report, item.path, item.at, nil)
			if !o.read(item.node, append(sendKeys(&step.Send, &step.Hex), patternKeys(&step.Expect)...)) {
				continue
			}
			if len(o.given) != 1 {
				item.fail(`is not one step; write one of send, send_hex, expect, expect_hex and expect_regex, such as {expect: "+PONG"}`)
			}
			waits = waits || step.Send == ""
			steps = append(steps, step)
		}
		switch {
		case len(steps) > maxSteps:
			v.fail("has %d steps; write at most %d", len(steps), maxSteps)
		case !waits:
			v.fail(`expects nothing; add a step that does, such as {expect: "+PONG"}`)
		default:
			*dst = steps
		}
	}
}

func readCommand(dst *[]string) func(*value) {
	return func(v *value) {
		if !v.is(list, "[/usr/local/bin/check-db, --fast]") {
			return
		}
		argv, ok := v.texts("text", func(s string) string {
			if strings.ContainsRune(s, 0) {
				return "an argument cannot hold a zero byte"
			}
			return ""
		})
		switch {
		case !ok:
		case len(argv) == 0:
			v.fail("an empty list; write the absolute path of a program, and arguments")
		case !path.IsAbs(argv[0]):
			v.fail("%s is not an absolute path; write one, such as /usr/local/bin/check-db", v.elements()[0].quoted())
		default:
			*dst = argv
		}
	}
}

func readALPN(dst *[]string) func(*value) {
	return func(v *value) {
		if !v.is(list, "[h2, http/1.1]") {
			return
		}
		protocols, ok := v.texts("h2", func(s string) string {
			if s == "" || len(s) > 255 || !printable(s) { // RFC 7301, section 3.1
				return "write the name of a protocol, such as h2"
			}
			return ""
		})
		if ok && !v.twice(protocols) {
			*dst = protocols
		}
	}
}

// texts returns the items of a list of texts; check is that of the key constructor
// text.
func (v *value) texts(right string, check func(string) string) (texts []string, ok bool) {
	ok = true
	for _, item := range v.elements() {
		s := ""
		k := text("", "", "", &s, check)
		if item.scalar(right) {
			k.read(item)
		}
		ok = ok && !item.bad && !item.missing
		texts = append(texts, s)
	}
	v.bad = v.bad || !ok
	return texts, ok
}

// fieldName and fieldValue are of RFC 9110, sections 5.1 and 5.5.
var (
	fieldName  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")
	fieldValue = regexp.MustCompile(`^([!-~]([ -~]*[!-~])?)?$`)
)

// ownHeaders are those that the check itself sets.
var ownHeaders = []string{"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}

// twice reports whether one of a list's texts is in it twice, which it refuses.
func (v *value) twice(texts []string) bool {
	seen := map[string]bool{}
	for i, text := range texts {
		if seen[text] {
			v.fail("%s is in this list twice; keep one", v.elements()[i].quoted())
			return true
		}
		seen[text] = true
	}
	return false
}

func readHeaders(dst *[]health.Header) func(*value) {
	return func(v *value) {
		if !v.is(mapping, `{X-Probe: "1"}`) {
			return
		}
		headers := []health.Header{}
		seen := map[string]bool{}
		for _, p := range v.pairs {
			item := &value{node: p.value, report: v.report, path: join(v.path, word(p.key))}
			name := strings.ToLower(p.key)
			switch {
			case !fieldName.MatchString(p.key):
				item.fail("%s is no header name; write one such as X-Probe", quote(p.key))
			case name == "host":
				item.fail("the host has a key of its own; write it as host, beside headers")
			case slices.Contains(ownHeaders, name):
				item.fail("%s is set by HTTP itself; remove it", quote(p.key))
			case seen[name]:
				item.fail("%s is here already, upper and lower case being the same; keep one", quote(p.key))
			case !item.scalar("text"):
			case !fieldValue.MatchString(item.text):
				item.fail("%s is no header value; write visible ASCII, with blanks only inside", item.quoted())
			default:
				headers = append(headers, health.Header{Name: p.key, Value: item.text})
			}
			seen[name] = true
			v.bad = v.bad || item.bad || item.missing
		}
		slices.SortFunc(headers, func(a, b health.Header) int { return strings.Compare(a.Name, b.Name) })
		if !v.bad {
			*dst = headers
		}
	}
}

func notEmpty(s string) string {
	if s == "" {
		return "write at least one character"
	}
	return ""
}

// maxRegex bounds what a check may have to follow for each byte of an answer.
const maxRegex = 1000

func regex(s string) string {
	if s == "" || len(s) > maxRegex {
		return `write a regular expression of up to 1000 characters, such as "^2[0-9][0-9] "`
	}
	if err := health.ParseRegex(s); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", " ") + `; write one in Go's syntax, such as "^2[0-9][0-9] "`
	}
	return ""
}

func regexOrNothing(s string) string {
	if s == "" {
		return ""
	}
	return regex(s)
}

// plainHostValue is a name as it is in certificates.
var plainHostValue = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)

func plainHost(s string) string {
	if _, err := netip.ParseAddr(s); err != nil && !plainHostValue.MatchString(s) || len(s) > 253 {
		return "write a host name or an IP address, without a port, or nothing"
	}
	return ""
}

// mailLiteral is an address as mail servers write it (RFC 5321, section 4.1.3).
var mailLiteral = regexp.MustCompile(`^\[[0-9A-Za-z:.]+\]$`)

func mailName(s string) string {
	if (!plainHostValue.MatchString(s) || len(s) > 253) && !mailLiteral.MatchString(s) {
		return "write a host name, or an address such as [10.0.0.9], or nothing for the address of the probe"
	}
	return ""
}

func pathOrNothing(s string) string {
	if s != "" && (!path.IsAbs(s) || path.Clean(s) != s || !printable(s)) {
		return "write the absolute path of a file, or nothing"
	}
	return ""
}

func serviceName(s string) string {
	if len(s) > 255 || !printable(s) || strings.ContainsAny(s, " ") {
		return "write the name of a service, such as orders.v1.Orders, or nothing for the server as a whole"
	}
	return ""
}
