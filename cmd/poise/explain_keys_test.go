package main

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/poise-lb/poise/internal/config"
)

// documentedKeys are the keys of services and pools with their examples in
// docs/config.md, which a test of internal/config compares with the tables of keys.
func documentedKeys(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:services|pools)\\.NAME\\.[^`]+)` \\|.*\\| `([^`]+)` \\|$").FindAllStringSubmatch(string(text), -1) {
		keys[m[1]] = m[2]
	}
	if len(keys) < 120 {
		t.Fatalf("docs/config.md has %d keys only", len(keys))
	}
	return keys
}

// without is what the example of a key is without the key, and without the sections
// that are empty then.
func without(example map[string]any, path []string) map[string]any {
	out := map[string]any{}
	for k, v := range example {
		if k != path[0] {
			out[k] = v
			continue
		}
		if below, ok := v.(map[string]any); ok && len(path) > 1 {
			if rest := without(below, path[1:]); len(rest) > 0 {
				out[k] = rest
			}
		}
	}
	return out
}

// apart are the keys whose example says less: with them alone taken away it would not
// be valid, or other keys would change with them, or it gives the default. Instead there is a pair that differs in the key.
var apart = map[string][2]string{
	"pools.NAME.close_backup_on_recovery":   {`backends: [{address: "10.0.0.1:80", backup: true}]`, `backends: [{address: "10.0.0.1:80", backup: true}], close_backup_on_recovery: true`},
	"pools.NAME.check.http.tls":             {`check: {type: http}`, `check: {type: http, http: {tls: true}}`},
	"services.NAME.listen":                  {`listen: ["127.0.0.1:7001"]`, `listen: ["127.0.0.1:7002"]`},
	"services.NAME.protocol":                {`pool: both`, `pool: both, protocol: udp`},
	"services.NAME.pool":                    {`pool: pg`, `pool: other`},
	"services.NAME.proxy_protocol.trusted":  {`proxy_protocol: {accept: v1, trusted: [10.0.0.2]}`, `proxy_protocol: {accept: v1, trusted: [10.0.0.3]}`},
	"services.NAME.proxy_protocol.accept":   {`proxy_protocol: {accept: v1, trusted: [10.0.0.2]}`, `proxy_protocol: {accept: v2, trusted: [10.0.0.2]}`},
	"services.NAME.limits.mask4":            {`limits: {per_source: 10}`, `limits: {per_source: 10, mask4: 24}`},
	"services.NAME.limits.mask6":            {`limits: {per_source: 10}`, `limits: {per_source: 10, mask6: 56}`},
	"services.NAME.tls.certificates[].cert": {`tls: {certificates: [{cert: /a, key: /k}]}`, `tls: {certificates: [{cert: /b, key: /k}]}`},
	"services.NAME.tls.certificates[].key":  {`tls: {certificates: [{cert: /a, key: /k}]}`, `tls: {certificates: [{cert: /a, key: /l}]}`},
	"services.NAME.tls.certificates[].ocsp": {`tls: {certificates: [{cert: /a, key: /k}]}`, `tls: {certificates: [{cert: /a, key: /k, ocsp: /o}]}`},
	"services.NAME.access.allow_files":      {`listen: [":1"]`, `listen: [":1"], access: {allow_files: ["${LIST}"]}`},
	"services.NAME.access.deny_files":       {`listen: [":1"]`, `listen: [":1"], access: {deny_files: ["${LIST}"]}`},
	"pools.NAME.backends[].address":         {`backends: [{address: "10.0.0.1:80"}]`, `backends: [{address: "10.0.0.2:80"}]`},
	"pools.NAME.backends[].name":            {`backends: [{address: "10.0.0.1:80"}]`, `backends: [{address: "10.0.0.1:80", name: a}]`},
	"pools.NAME.backends[].weight":          {`backends: [{address: "10.0.0.1:80"}]`, `backends: [{address: "10.0.0.1:80", weight: 1}]`},
	"pools.NAME.backends[].backup":          {`backends: [{address: "10.0.0.1:80"}]`, `backends: [{address: "10.0.0.1:80", backup: true}]`},
	"pools.NAME.backends[].max_connections": {`backends: [{address: "10.0.0.1:80"}]`, `backends: [{address: "10.0.0.1:80", max_connections: 5}]`},
	"pools.NAME.backends":                   {`backends: [10.0.0.1:80]`, `backends: [10.0.0.2:80]`},
	"pools.NAME.ab.a":                       {`ab: {a: p2c, b: ewma}`, `ab: {a: first, b: ewma}`},
	"pools.NAME.ab.b":                       {`ab: {a: p2c, b: ewma}`, `ab: {a: p2c, b: first}`},
	"services.NAME.sni":                     {`sni: {a.example.org: pg}`, `sni: {b.example.org: pg}`},
	"services.NAME.tls.certificates":        {`tls: {certificates: [{cert: /a, key: /k}]}`, `tls: {certificates: [{cert: /a, key: /k}, {cert: /b, key: /k}]}`},
	"services.NAME.udp.replies":             {`protocol: udp, pool: dns, udp: {replies: 1}`, `protocol: udp, pool: dns, udp: {replies: 2}`},
	"pools.NAME.tls.server_name":            {`tls: {server_name: a}`, `tls: {server_name: b}`},
	"pools.NAME.tls.ca":                     {`tls: {server_name: a}`, `tls: {server_name: a, ca: /ca}`},
	"pools.NAME.tls.alpn":                   {`tls: {server_name: a}`, `tls: {server_name: a, alpn: [mqtt]}`},
	"pools.NAME.tls.min_version":            {`tls: {server_name: a}`, `tls: {server_name: a, min_version: "1.3"}`},
	"pools.NAME.tls.cert":                   {`tls: {cert: /a, key: /k}`, `tls: {cert: /b, key: /k}`},
	"pools.NAME.tls.key":                    {`tls: {cert: /a, key: /k}`, `tls: {cert: /a, key: /l}`},
	"pools.NAME.tls.verify":                 {`tls: {server_name: a}`, `tls: {server_name: a, verify: false}`},
	"pools.NAME.check.expect":               {`check: {type: expect, expect: [{expect: a}]}`, `check: {type: expect, expect: [{send: a}, {expect: a}]}`},
	"pools.NAME.check.udp.send":             {`check: {type: udp, udp: {send: a, expect: b}}`, `check: {type: udp, udp: {send: aa, expect: b}}`},
	"pools.NAME.check.udp.send_hex":         {`check: {type: udp, udp: {send_hex: "00", expect: b}}`, `check: {type: udp, udp: {send_hex: "0000", expect: b}}`},
	"pools.NAME.check.udp.expect":           {`check: {type: udp, udp: {send: a, expect: b}}`, `check: {type: udp, udp: {send: a, expect: c}}`},
	"pools.NAME.check.udp.expect_hex":       {`check: {type: udp, udp: {send: a, expect_hex: "00"}}`, `check: {type: udp, udp: {send: a, expect_hex: "01"}}`},
	"pools.NAME.check.udp.expect_regex":     {`check: {type: udp, udp: {send: a, expect_regex: b}}`, `check: {type: udp, udp: {send: a, expect_regex: c}}`},
	"pools.NAME.check.exec.command":         {`check: {type: exec, exec: {command: [/bin/a]}}`, `check: {type: exec, exec: {command: [/bin/b]}}`},
	"pools.NAME.check.dns.name":             {`check: {type: dns, dns: {name: a}}`, `check: {type: dns, dns: {name: b}}`},
	"pools.NAME.check.postgres.user":        {`check: {type: postgres, postgres: {user: a}}`, `check: {type: postgres, postgres: {user: b}}`},
	"pools.NAME.check.mysql.user":           {`check: {type: mysql, mysql: {user: a}}`, `check: {type: mysql, mysql: {user: b}}`},
	"pools.NAME.check.redis.user":           {`check: {type: redis, redis: {password: p}}`, `check: {type: redis, redis: {password: p, user: b}}`},
	"pools.NAME.check.tls.verify":           {`check: {type: tls}`, `check: {type: tls, tls: {verify: false}}`},
	"pools.NAME.sticky.by":                  {`sticky: {by: none}`, `sticky: {by: source}`},
	"pools.NAME.queue.size":                 {`max_connections: 9, queue: {size: 1}`, `max_connections: 9, queue: {size: 2}`},
	"pools.NAME.resolve.servers":            {`backends: ["a.example.org:80"]`, `backends: ["a.example.org:80"], resolve: {servers: [10.0.0.53]}`},
}

// calls are the keys that a reload calls otherwise, for what they say is of something
// that has a name of its own.
var calls = map[string]string{
	"services.NAME.listen":                  "listener",
	"services.NAME.tls.certificates[].cert": "tls.certificates",
	"services.NAME.tls.certificates[].key":  "tls.certificates",
	"services.NAME.tls.certificates[].ocsp": "tls.certificates",
	"pools.NAME.backends":                   "backend",
	"pools.NAME.backends[].address":         "backend",
	"pools.NAME.backends[].name":            "backend a: was called",
	"pools.NAME.backends[].weight":          "backend 10.0.0.1:80: weight",
	"pools.NAME.backends[].backup":          "backend 10.0.0.1:80: backup",
	"pools.NAME.backends[].max_connections": "backend 10.0.0.1:80: max_connections",
	"pools.NAME.max_connections":            "backend 10.0.0.1:5432: max_connections", // which has it
}

// Every key of a service or a pool changes what is told when it alone changes, and a
// reload names that key and no other.
func TestExplainTellsEveryKey(t *testing.T) {
	list := t.TempDir() + "/list"
	if err := os.WriteFile(list, []byte("10.9.0.0/16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LIST", list)
	keys := documentedKeys(t)
	for key, example := range keys {
		t.Run(key, func(t *testing.T) {
			section, path, _ := strings.Cut(key, ".NAME.")
			given, changed := "", example
			if pair, ok := apart[key]; ok {
				given, changed = pair[0], pair[1]
			} else {
				var whole map[string]any
				if err := yaml.Unmarshal([]byte("{"+example+"}"), &whole); err != nil {
					t.Fatalf("%s: %v", key, err)
				}
				text, err := yaml.MarshalWithOptions(without(whole, strings.Split(path, ".")), yaml.JSON())
				if err != nil {
					t.Fatal(err)
				}
				given = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(text)), "{"), "}")
			}
			file := func(keys string) *config.File {
				service, pool := "", keys
				if section == "services" {
					service, pool = keys, ""
				}
				f, err := config.Parse("poise.yaml", []byte("runtime: {allow_exec: true}\n"+
					"defaults: {services: {listen: [\"127.0.0.1:7000\"], pool: pg}, pools: {backends: [10.0.0.1:5432]}}\n"+
					"services: {web: {"+service+"}}\n"+
					"pools: {pg: {"+pool+"}, other: {}, both: {check: {type: tcp}}, dns: {check: {type: none}}}\n"))
				if err != nil {
					t.Fatalf("%s: %v", key, err)
				}
				return f
			}
			tell := func(f *config.File) string {
				var b strings.Builder
				if err := explain(&b, f); err != nil {
					t.Fatalf("%s: %v", key, err)
				}
				return b.String()
			}
			old, now := file(given), file(changed)
			if told := tell(old); told == tell(now) {
				t.Errorf("the same is told of {%s} and {%s}:\n%s", given, changed, told)
			}
			diff := config.Diff(old, now)
			if len(diff) == 0 {
				t.Errorf("a reload says nothing of {%s} and {%s}", given, changed)
			}
			for _, line := range diff {
				object := map[string]string{"services": "service web: ", "pools": "pool pg: "}[section]
				if rest, ok := strings.CutPrefix(line, object); !ok || !strings.HasPrefix(rest, cmp.Or(calls[key], path)+" ") {
					t.Errorf("of {%s} and {%s} a reload says %s", given, changed, line)
				}
			}
		})
	}
	for key := range apart {
		if _, known := keys[key]; !known {
			t.Errorf("%s is no key", key)
		}
	}
}
