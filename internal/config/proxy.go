package config

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

// ProxyTLVs says what a PROXY header of version 2 says besides addresses
// (proxy-protocol.txt, section 2.2). What is not known is left out.
type ProxyTLVs struct {
	Authority bool       // the server name the client asked for
	ALPN      bool       // the protocol agreed on with the client
	SSL       bool       // what TLS with the client is like
	UniqueID  bool       // what the client's own proxy calls the connection, or else a number of ours
	Custom    []wire.TLV // by type, 0xE0 to 0xEF; values of 1 to 255 bytes
}

// proxyInKeys are the keys of a service that have to do with PROXY headers.
func proxyInKeys(p *tcp.ProxyIn) key {
	return section("proxy_protocol",
		choice("accept", "off", &p.Accept, []meaning[wire.ProxyAccept]{{"off", 0}, {"v1", wire.AcceptV1}, {"v2", wire.AcceptV2}, {"any", wire.AcceptAny}}),
		key{name: "trusted", typ: "list of prefixes", def: none, read: readPrefixes(&p.Trusted), members: each(&p.Trusted)},
	)
}

// proxyOutKeys are those of a pool.
func proxyOutKeys(p *pool) []key {
	t := &p.ProxyTLVs
	return []key{
		choice("send_proxy", "off", &p.SendProxy, []meaning[string]{{"off", ""}, {"v1", "v1"}, {"v2", "v2"}, {"v2-each", "v2-each"}}),
		section("proxy_tlvs",
			boolean("authority", "true", &t.Authority),
			boolean("alpn", "true", &t.ALPN),
			boolean("ssl", "true", &t.SSL),
			boolean("unique_id", "false", &t.UniqueID),
			key{name: "custom", typ: "mapping of types to texts", def: none, read: readTLVs(&t.Custom), held: listed(&t.Custom)},
		),
	}
}

// finishGreeting applies the rules of what comes before a connection has a backend.
func (s *service) finishGreeting() {
	t := &s.tcp
	in := &t.Proxy
	switch {
	case in.Accept == 0 && s.gives("proxy_protocol.trusted") && len(in.Trusted) > 0:
		s.problem([]string{"proxy_protocol.trusted", "proxy_protocol.accept"}, "has no effect with accept: off; write accept: any, or remove it")
	case in.Accept != 0 && len(in.Trusted) == 0:
		s.problem([]string{"proxy_protocol.accept", "proxy_protocol.trusted"},
			"would believe nobody; write who sends the header as trusted, such as trusted: [10.0.0.2]")
	}
	if in.Accept == 0 {
		in.Trusted = nil
	}
	greets := s.TLS != nil || s.SNI != nil
	if t.StartTLS && !greets {
		if s.gives("starttls") {
			s.problem([]string{"starttls", "tls", "sni"}, "has no effect without TLS; set tls or sni, or remove it")
		}
		t.StartTLS = false
	}
	if s.gives("timeouts.first_bytes") && in.Accept == 0 && !greets {
		s.problem([]string{"timeouts.first_bytes", "proxy_protocol", "tls", "sni"},
			"has no effect on a service that needs nothing of the client first; set proxy_protocol, tls or sni, or remove it")
	}
}

// finishProxy applies the rules of the PROXY header towards backends.
func (p *pool) finishProxy() {
	if p.gives("proxy_tlvs") && (p.SendProxy == "" || p.SendProxy == "v1") {
		p.problem([]string{"proxy_tlvs", "send_proxy"}, "has no effect with send_proxy: %s; set send_proxy: v2, or remove it", p.told("send_proxy", orOff(p.SendProxy)))
	}
	// A check goes where connections go, and says first that it is nobody's.
	if p.Check.Proxy = p.SendProxy; p.SendProxy == "v2-each" {
		p.Check.Proxy = "v2"
	}
	if p.Transparent {
		p.refuseUnix(p.object, "source", "knows no addresses of clients")
	}
}

func orOff(s string) string {
	if s == "" {
		return "off"
	}
	return s
}

// tlvType matches the types for everybody's own use (proxy-protocol.txt, section
// 2.2.8).
var tlvType = regexp.MustCompile(`^0x[eE][0-9a-fA-F]$`)

const maxTLV = 255

func readTLVs(dst *[]wire.TLV) func(*value) {
	return func(v *value) {
		if !v.is(mapping, `{"0xE0": text}`) {
			return
		}
		tlvs := []wire.TLV{}
		seen := map[byte]bool{}
		for _, p := range v.pairs {
			item := &value{node: p.value, report: v.report, path: join(v.path, word(p.key))}
			t, value := wire.TLV{}, ""
			n, _ := strconv.ParseUint(p.key, 0, 8)
			t.Type = byte(n)
			text("", "", "", &value, func(s string) string {
				if s == "" || len(s) > maxTLV {
					return "write a text of 1 to 255 bytes"
				}
				return ""
			}).read(item)
			switch {
			case !tlvType.MatchString(p.key):
				v.add(p.at, item.path, "%s is no type for one's own use; write one from 0xE0 to 0xEF", quote(p.key))
				v.bad = true
			case seen[t.Type]:
				v.add(p.at, item.path, "type 0x%X is here already; keep one", t.Type)
				v.bad = true
			}
			t.Value = []byte(value)
			seen[t.Type] = true
			tlvs = append(tlvs, t)
			v.bad = v.bad || item.bad || item.missing
		}
		slices.SortFunc(tlvs, func(a, b wire.TLV) int { return int(a.Type) - int(b.Type) })
		if !v.bad {
			*dst = slices.Clip(tlvs)
		}
	}
}
