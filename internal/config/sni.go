package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// SNI says where connections go by the server name that the client asks for.
type SNI struct {
	// Rules are sorted by pattern; those of one pattern are in order of preference,
	// and only the last of them may be without a condition.
	Rules []SNIRule

	// The pools of those that no rule is for; "" closes them.
	Default string // no name, or one that no rule takes
	NotTLS  string // the client does not begin with a ClientHello
	NoHello string // the client says nothing for timeouts.first_bytes
}

// SNIRule is one pool that a name leads to.
type SNIRule struct {
	Pattern string   // lower case: "db.example.org", or "*.example.org" for one label and the rest
	ALPN    []string // the client must offer one of these; none = no condition
	Pool    string   // one of File.Pools
}

// sniTo is a mention of a pool: whether there is one of that name is known later.
type sniTo struct {
	pool  string
	shown string // the same as far as it may be told
	at    position
	path  string
}

// sni is a service's SNI while it is read.
type sni struct {
	SNI
	on bool
	to []sniTo
}

// readSNI stores what stands under sni, as a whole: it is not added to what is
// inherited.
func (s *service) readSNI(v *value) {
	if !v.is(mapping, `{"db.example.org": pg}`) {
		return
	}
	out := sni{on: len(v.pairs) > 0}
	seen := map[string]string{}
	for _, p := range v.pairs {
		item := &value{node: p.value, report: v.report, path: join(v.path, word(p.key))}
		switch pattern, right := sniPattern(p.key); {
		case p.key == "default":
			out.Default = out.pool(item)
		case p.key == "not_tls":
			out.NotTLS = out.pool(item)
		case p.key == "no_hello":
			out.NoHello = out.pool(item)
		case right != "":
			v.add(p.at, item.path, "%s is not a server name; %s", quote(p.key), right)
			v.bad = true
		case seen[pattern] != "":
			v.add(p.at, item.path, "is %s once more, upper and lower case being the same; keep one", seen[pattern])
			v.bad = true
		default:
			seen[pattern] = word(p.key)
			out.rules(pattern, item)
		}
		v.bad = v.bad || item.bad || item.missing
	}
	if out.on && len(out.Rules) == 0 && !v.bad {
		v.fail(`names no server; write at least one, such as "db.example.org": pg, or name the pool of all as the service's pool`)
	}
	slices.SortStableFunc(out.Rules, func(a, b SNIRule) int { return strings.Compare(a.Pattern, b.Pattern) })
	s.sni = out
}

// sniWords are the keys of sni that are no server names.
var sniWords = []string{"default", "not_tls", "no_hello"}

// sniPattern normalises a pattern; right is "" or what would be right. Names on the
// wire have no final dot and are no addresses (RFC 6066, section 3).
func sniPattern(s string) (pattern, right string) {
	pattern = strings.ToLower(s)
	host, wild := strings.CutPrefix(pattern, "*.")
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case pattern == "*":
		return "", "write default for every other name"
	case strings.HasSuffix(host, ".") && isHost(strings.TrimSuffix(host, ".")):
		return "", "write it without the final dot, which clients do not send"
	case err == nil:
		return "", "a client that goes by an address asks for no name; write default for those"
	case !wild && strings.Contains(pattern, "*"):
		return "", "an asterisk stands for the whole first label; write it as *.example.org"
	case !isHost(host):
		return "", "write one such as db.example.org or *.example.org, or " + oneOf(sniWords)
	}
	if near := Nearest(pattern, sniWords); near != "" && !strings.Contains(pattern, ".") {
		return "", fmt.Sprintf("did you mean %q?", near)
	}
	return pattern, ""
}

// pool reads the name of a pool.
func (s *sni) pool(v *value) (pool string) {
	if !v.scalar("the name of a pool") {
		return ""
	}
	if text("", "", "", &pool, isName).read(v); pool != "" {
		s.to = append(s.to, sniTo{pool, v.shown(), v.at, v.path})
	}
	return pool
}

// rules reads where a pattern leads: a pool, a pool with a condition, or a list of
// these.
func (s *sni) rules(pattern string, v *value) {
	items := []*value{v}
	if v.kind == list {
		if items = v.elements(); len(items) == 0 {
			v.fail("an empty list; write the name of a pool")
		}
	}
	for i, item := range items {
		rule := SNIRule{Pattern: pattern}
		if item.kind == mapping {
			o := newObject(v.report, item.path, item.at, nil)
			poolKey := key{name: "pool", read: func(v *value) { rule.Pool = s.pool(v); item.bad = item.bad || v.bad }}
			alpnKey := key{name: "alpn", read: func(v *value) { readALPN(&rule.ALPN)(v); item.bad = item.bad || v.bad }}
			if o.read(item.node, []key{poolKey, alpnKey}) && !o.has("pool") {
				o.problem([]string{"pool"}, "missing; name the pool that the server name leads to")
			}
		} else {
			rule.Pool = s.pool(item)
		}
		if len(rule.ALPN) == 0 && i < len(items)-1 && !item.bad {
			item.fail("takes every client, so that what follows is never reached; move it to the end, or give it a condition such as alpn: [h2]")
		}
		s.Rules = append(s.Rules, rule)
		v.bad = v.bad || item.bad || item.missing
	}
}

// finishSNI applies the rules of sni that concern several keys. Of sni and what
// cannot be beside it, the one that is written closer to the service counts.
func (s *service) finishSNI(pools poolsByName) {
	if !s.sni.on {
		return
	}
	if s.TLS != nil {
		switch own := s.gives("sni"); {
		case own == s.givesBelow("tls"):
			s.problem([]string{"sni", "tls"}, "routes TLS that stays closed, and tls opens it; remove one of the two")
		case own:
			s.TLS = nil
		default:
			return
		}
	}
	if s.Pool != "" {
		switch own := s.gives("sni"); {
		case own == s.gives("pool"):
			s.problem([]string{"pool", "sni"}, "is not looked at beside sni; write it as sni.default, or remove it")
		case !own:
			return
		}
	}
	for _, to := range s.sni.to {
		if pools.of[to.pool] == nil {
			s.add(to.at, to.path, "there is no pool %q; define it under pools, or name another%s", to.shown, s.meantPool(to.shown, pools))
		}
	}
	s.Pool = ""
	sni := s.sni.SNI
	s.SNI = &sni
}

// finishSNIPools refuses TLS to the backends that clients' own TLS is forwarded to.
func (s *service) finishSNIPools(pools poolsByName) {
	forwards := map[string]bool{s.SNI.Default: true}
	for _, r := range s.SNI.Rules {
		forwards[r.Pool] = true
	}
	for name := range forwards {
		if p := pools.of[name]; p != nil && p.TLS != nil {
			p.problem([]string{"tls"}, "would be TLS within TLS, for service %s forwards what it routes by sni unopened; remove it, or give the service a pool of its own", s.Name)
		}
	}
}

// meantPool is the hint at the pool that is probably meant, or "".
func (r *report) meantPool(got string, pools poolsByName) string {
	if near := r.nearest(got, pools.names); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}
