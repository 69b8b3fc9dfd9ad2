package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kinds has a service of each kind.
const kinds = `
services:
  dns: {listen: ["10.0.0.9:53"], protocol: udp, pool: dns, udp: {replies: 1}}
  mqtt:
    listen: [":8883"]
    pool: mqtt
    proxy_protocol: {accept: any, trusted: [10.0.0.0/8]}
    access: {allow: [192.0.2.0/24], deny: [192.0.2.1, 192.0.2.2], deny_files: [/etc/poise/deny.list]}
    limits: {per_source: 5}
    tls: {certificates: [{cert: /etc/a.crt, key: /etc/a.key}, {cert: /etc/b.crt, key: /etc/b.key}], alpn: [mqtt]}
  pg:
    listen: [":5432"]
    starttls: postgres
    sni: {"a.example.org": [{pool: mqtt, alpn: [h2]}, sql], "*.example.org": sql, default: sql}
pools:
  dns: {backends: ["10.0.0.1:53"], check: {type: dns, dns: {name: a.example.org}}, send_proxy: v2, proxy_tlvs: {custom: {"0xE0": a}}}
  mqtt: {backends: ["10.0.0.2:1883"], source: 10.0.0.9}
  sql: {backends: ["10.0.0.4:5432"]}
  pg: {backends: ["10.0.0.3:5432"], tls: {server_name: db.internal, alpn: [a]}, replay: 1k}
`

func TestDiffOfServices(t *testing.T) {
	for _, c := range []struct {
		edits []string // old, new, old, new, ...
		want  []string
	}{
		{nil, nil},
		{
			[]string{`["10.0.0.9:53"], protocol: udp, pool: dns, udp: {replies: 1}`, `["10.0.0.9:53"], protocol: udp, freebind: true, pool: dns, udp: {idle: 5s, max_sessions: 9}`},
			[]string{
				"service dns: freebind false -> true",
				"service dns: udp.idle 30s -> 5s",
				"service dns: udp.replies 1 -> 0",
				"service dns: udp.retry true -> false",
				"service dns: udp.max_sessions 0 -> 9",
			},
		},
		{
			[]string{`["10.0.0.9:53"], protocol: udp, pool: dns, udp: {replies: 1}`, `["10.0.0.9:53", ":54"], pool: dns`},
			[]string{"service dns: listener :54 added", "service dns: protocol udp -> tcp"},
		},
		{
			[]string{"  dns: {listen", "  names: {listen"},
			[]string{"service names: added on udp 10.0.0.9:53, pool dns", "service dns: removed"},
		},
		{
			[]string{"  pg:\n    listen", "  db:\n    listen"},
			[]string{"service db: added on :5432, pools mqtt, sql", "service pg: removed"},
		},
		{
			[]string{
				"accept: any, trusted: [10.0.0.0/8]", "accept: v2, trusted: [10.0.0.7, 10.0.0.8]",
				"allow: [192.0.2.0/24], deny: [192.0.2.1, 192.0.2.2], deny_files: [/etc/poise/deny.list]", "deny: [192.0.2.2, 192.0.2.1], allow_files: [/etc/poise/allow.list]",
				"per_source: 5}", "rate: 0.5, source_rate: 7, mask6: 48}\n    on_refuse: drop",
			},
			[]string{
				"service mqtt: proxy_protocol.accept any -> v2",
				"service mqtt: proxy_protocol.trusted 10.0.0.7/32, 10.0.0.8/32 added",
				"service mqtt: proxy_protocol.trusted 10.0.0.0/8 removed",
				"service mqtt: access.allow 192.0.2.0/24 removed",
				"service mqtt: access.allow_files /etc/poise/allow.list added",
				"service mqtt: access.deny_files /etc/poise/deny.list removed",
				"service mqtt: limits.per_source 5 -> 0",
				"service mqtt: limits.rate 0 -> 0.5",
				"service mqtt: limits.source_rate 0 -> 7",
				"service mqtt: limits.mask6 64 -> 48",
				"service mqtt: on_refuse reset -> drop",
			},
		},
		{
			[]string{
				"[{cert: /etc/a.crt, key: /etc/a.key}, {cert: /etc/b.crt, key: /etc/b.key}], alpn: [mqtt]",
				"[{cert: /etc/b.crt, key: /etc/c.key}, {cert: /etc/c.crt, key: /etc/c.key}], min_version: \"1.3\", client_ca: /etc/ca.pem, max_handshakes: 5",
				"    pool: mqtt\n", "    pool: mqtt\n    timeouts: {first_bytes: 1s}\n",
			},
			[]string{
				"service mqtt: timeouts.first_bytes 5s -> 1s",
				"service mqtt: tls.certificates /etc/b.crt has another key or ocsp",
				"service mqtt: tls.certificates /etc/c.crt added",
				"service mqtt: tls.certificates /etc/a.crt removed",
				`service mqtt: tls.client_ca "" -> /etc/ca.pem`,
				"service mqtt: tls.min_version 1.2 -> 1.3",
				"service mqtt: tls.alpn has changed",
				"service mqtt: tls.max_handshakes 1000 -> 5",
			},
		},
		{
			[]string{"[{cert: /etc/a.crt, key: /etc/a.key}, {cert: /etc/b.crt, key: /etc/b.key}]", "[{cert: /etc/b.crt, key: /etc/b.key}, {cert: /etc/a.crt, key: /etc/a.key}]"},
			[]string{"service mqtt: tls.certificates in another order"},
		},
		{
			[]string{"    tls: {certificates: [{cert: /etc/a.crt, key: /etc/a.key}, {cert: /etc/b.crt, key: /etc/b.key}], alpn: [mqtt]}\n", ""},
			[]string{"service mqtt: tls on -> off"},
		},
		{
			[]string{`{"a.example.org": [{pool: mqtt, alpn: [h2]}, sql], "*.example.org": sql, default: sql}`, `{"b.example.org": sql, "a.example.org": [{pool: mqtt, alpn: [h2, h3]}, mqtt], no_hello: sql, not_tls: mqtt}`, "    starttls: postgres\n", ""},
			[]string{
				"service pg: sni a.example.org mqtt for h2; sql -> mqtt for h2, h3; mqtt",
				"service pg: sni b.example.org added, to sql",
				"service pg: sni *.example.org removed",
				`service pg: sni.default sql -> ""`,
				`service pg: sni.not_tls "" -> mqtt`,
				`service pg: sni.no_hello "" -> sql`,
				"service pg: starttls postgres -> none",
			},
		},
		{
			[]string{"    starttls: postgres\n    sni: {\"a.example.org\": [{pool: mqtt, alpn: [h2]}, sql], \"*.example.org\": sql, default: sql}\n", "    pool: pg\n"},
			[]string{`service pg: pool "" -> pg`, "service pg: sni on -> off", "service pg: starttls postgres -> none"},
		},
		{
			[]string{
				`send_proxy: v2, proxy_tlvs: {custom: {"0xE0": a}}`, `send_proxy: v2-each, proxy_tlvs: {authority: false, custom: {"0xE0": b}}`,
				"source: 10.0.0.9", "source: client",
				"tls: {server_name: db.internal, alpn: [a]}, replay: 1k", "tls: {server_name: db.internal, verify: false, min_version: \"1.3\", starttls: postgres}",
			},
			[]string{
				"pool dns: send_proxy v2 -> v2-each",
				"pool dns: proxy_tlvs.authority true -> false",
				"pool dns: proxy_tlvs.custom has changed",
				"pool mqtt: source 10.0.0.9 -> client",
				"pool pg: tls.verify true -> false",
				"pool pg: tls.alpn has changed",
				"pool pg: tls.min_version 1.2 -> 1.3",
				"pool pg: tls.starttls none -> postgres",
				"pool pg: replay 1024 -> 0",
			},
		},
		{
			[]string{"tls: {server_name: db.internal, alpn: [a]}, ", ""},
			[]string{"pool pg: tls on -> off"},
		},
	} {
		text := kinds
		for i := 0; i < len(c.edits); i += 2 {
			if strings.Count(text, c.edits[i]) != 1 {
				t.Fatalf("%q is not there once", c.edits[i])
			}
			text = strings.Replace(text, c.edits[i], c.edits[i+1], 1)
		}
		if d := cmp.Diff(c.want, Diff(parsed(t, kinds), parsed(t, text))); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.edits, d)
		}
	}
}
