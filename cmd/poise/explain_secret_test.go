package main

import (
	"fmt"
	"strings"
	"testing"
)

// What a variable holds is not told in any form: the text is the same whatever it
// holds, for values of every kind, also where it is printed otherwise than it is
// written (600s is 10m), where it is short and where it is inherited.
func TestExplainHidesByOrigin(t *testing.T) {
	cases := []struct{ service, pool, one, other string }{
		{service: `timeouts: {idle: "$V"}`, one: "600s", other: "7201s"},
		{service: `timeouts: {connect: "$V"}`, one: "0.5s", other: "1s"},
		{service: `keepalive: {idle: "$V"}`, one: "60s", other: "61s"},
		{service: `keepalive: {probes: "$V"}`, one: "1", other: "9"},
		{service: `max_connections: "$V"`, one: "5k", other: "7"},
		{service: `buffer: "$V"`, one: "1", other: "64k"},
		{service: `retries: "$V"`, one: "1", other: "3"},
		{service: `limits: {rate: "$V"}`, one: "5000.0", other: "0.5"},
		{service: `limits: {per_source: 9, mask4: "$V"}`, one: "24", other: "8"},
		{service: `access: {allow: [10.0.0.0/8, "$V"]}`, one: "192.0.2.7", other: "2001:DB8::/32"},
		{service: `access: {allow: [10.0.0.0/8]}, on_refuse: "$V"`, one: "reset", other: "drop"},
		{service: `listen: ["$V", "10.0.0.1:81"]`, one: "[2001:DB8:0::1]:80", other: "10.0.0.2:80"},
		{service: `proxy_protocol: {accept: "$V", trusted: [10.0.0.2]}`, one: "v1", other: "any"},
		{service: `proxy_protocol: {accept: any, trusted: ["$V"]}`, one: "10.0.0.2", other: "10.0.0.3"},
		{service: `tls: {certificates: [{cert: "$V", key: /k}]}`, one: "/a", other: "/b"},
		{service: `tls: {certificates: [{cert: /c, key: /k}], alpn: ["$V"]}`, one: "h2", other: "mqtt"},
		{service: `tls: {certificates: [{cert: /c, key: /k}], min_version: "$V"}`, one: "1.2", other: "1.3"},
		{service: `pool: null, sni: {A.example.org: [{pool: pg, alpn: ["$V"]}, pg]}`, one: "h2", other: "mqtt"},
		{service: `pool: null, sni: {a.example.org: {pool: pg, alpn: [h3, "$V"]}}`, one: "h2", other: "mqtt"},
		{pool: `balance: "$V"`, one: "p2c", other: "first"},
		{pool: `balance: maglev, hash: {key: "$V"}`, one: "source", other: "source-port"},
		{pool: `balance: maglev, hash: {bound: "$V"}`, one: "1.50", other: "2"},
		{pool: `ab: {a: p2c, b: ewma, split: "$V"}`, one: "0.25", other: "0.5"},
		{pool: `on_down: "$V"`, one: "keep", other: "close"},
		{pool: `on_remove: "$V"`, one: "drain 600s", other: "close"},
		{pool: `backends: ["$V"]`, one: "10.0.0.1:80", other: "unix:/run/x"},
		{pool: `backends: ["a.example.org:80", {address: "$V"}, 10.0.0.9:1]`, one: "[2001:DB8::1]:80", other: "10.0.0.7:80"},
		{pool: `backends: [10.0.0.9:1, "$V", 10.0.0.8:1]`, one: "B.Example.org:80", other: "c.example.org:81"},
		{pool: `backends: [{address: "10.0.0.9:1", weight: "$V"}]`, one: "7", other: "70"},
		{pool: `max_connections: "$V"`, one: "1k", other: "7"},
		{pool: `source: "$V"`, one: "10.0.0.9", other: "10.0.0.8"},
		{pool: `source: client, backends: [10.0.0.9:1, "$V"]`, one: "10.0.0.8:1", other: "10.0.0.7:1"},
		{pool: `replay: "$V"`, one: "1k", other: "7"},
		{pool: `panic: "$V"`, one: "1", other: "99"},
		{pool: `check: {interval: "$V", fast_interval: 10ms}`, one: "1000ms", other: "2s"},
		{pool: `check: {interval: "$V"}`, one: "100ms", other: "200ms"},
		{pool: `check: {port: "$V"}`, one: "8080", other: "80"},
		{pool: `check: {initial: "$V"}`, one: "up", other: "down"},
		{pool: `check: {type: http, http: {expect_body_regex: "$V"}}`, one: "a.c", other: "^x\n"},
		{pool: `check: {type: http, http: {path: "/x?$V"}}`, one: "a", other: "b"},
		{pool: `check: {type: http, http: {expect_status: "$V"}}`, one: "200", other: "200-201, 204"},
		{pool: `check: {type: udp, udp: {send: "$V", expect_hex: "00"}}`, one: "a", other: "abc"},
		{pool: `check: {type: udp, udp: {send: a, expect_hex: "$V"}}`, one: "00", other: "7a"},
		{pool: `check: {type: exec, exec: {command: ["$V"]}}`, one: "/bin/a", other: "/bin/b"},
		{pool: `check: {type: postgres, postgres: {user: "$V", role: replica, max_lag: 5s}}`, one: "a", other: "b"},
		{pool: `check: {type: postgres, postgres: {user: a, role: "$V"}}`, one: "master", other: "replica"},
		{pool: `check: {type: postgres, postgres: {user: a, max_lag: "$V"}}`, one: "60s", other: "7s"},
		{pool: `checks: [{type: tcp}, {type: dns, dns: {name: "$V"}}]`, one: "a.b", other: "c.d"},
		{pool: `backends: ["a.example.org:80"], resolve: {servers: ["$V"]}`, one: "10.0.0.53", other: "[::1]:53"},
		{pool: `tls: {server_name: "$V"}`, one: "a", other: "b"},
		{pool: `send_proxy: "$V"`, one: "v2", other: "v1"},
	}
	for _, c := range cases {
		for _, inherited := range []bool{false, true} {
			service, pool := strings.ReplaceAll(c.service, "$V", "${V}"), strings.ReplaceAll(c.pool, "$V", "${V}")
			t.Run(fmt.Sprintf("%s%s inherited %t", c.service, c.pool, inherited), func(t *testing.T) {
				rest := `listen: ["10.0.0.1:70"], pool: pg`
				if strings.Contains(service, "listen:") {
					rest = `pool: pg`
				}
				if strings.Contains(service, "sni:") {
					rest, service = `listen: ["10.0.0.1:70"]`, strings.TrimPrefix(service, "pool: null, ")
				}
				backends := `backends: [10.0.0.1:80]`
				if strings.Contains(pool, "backends:") {
					backends = ""
				}
				format := "runtime: {allow_exec: true}\ndefaults: {services: {%[1]s}, pools: {%[2]s}}\nservices: {web: {%[3]s}}\npools: {pg: {%[4]s}}\n"
				if inherited {
					format = "runtime: {allow_exec: true}\ndefaults: {services: {%[3]s, %[1]s}, pools: {%[4]s, %[2]s}}\nservices: {web: {}}\npools: {pg: {}}\n"
				} else {
					format = strings.NewReplacer("%[1]s", "", "%[2]s", "", "%[3]s", "%[3]s, %[1]s", "%[4]s", "%[4]s, %[2]s").Replace(format)
				}
				text := strings.NewReplacer("{, ", "{", ", }", "}").Replace(fmt.Sprintf(format, service, pool, rest, backends))
				t.Setenv("V", c.one)
				one, err := explained(t, text)
				if err != nil {
					t.Fatal(err)
				}
				t.Setenv("V", c.other)
				if other, err := explained(t, text); err != nil || one != other || !strings.Contains(one, "${V}") {
					t.Errorf("%v\n%s: %s\n%s: %s", err, c.one, one, c.other, other)
				}
			})
		}
	}
}
