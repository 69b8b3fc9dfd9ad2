package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a reload changes is said in the same words whatever a variable holds, also where
// its value is printed in another form: none of it is told.
func TestDiffHidesByOrigin(t *testing.T) {
	cases := []struct{ service, pool, one, other string }{
		{service: `timeouts: {idle: "$V"}`, one: "630s", other: "7201s"},
		{service: `timeouts: {connect_total: "$V"}`, one: "0.2m", other: "11s"},
		{service: `keepalive: {idle: "$V"}`, one: "61s", other: "2m"},
		{service: `max_connections: "$V"`, one: "5k", other: "7"},
		{service: `retries: "$V"`, one: "1", other: "3"},
		{service: `limits: {rate: "$V"}`, one: "5000.0", other: "0.5"},
		{service: `limits: {per_source: 9, mask4: "$V"}`, one: "24", other: "8"},
		{service: `access: {allow: [10.0.0.0/8, "$V"]}`, one: "192.0.2.7", other: "2001:DB8::/32"},
		{service: `listen: ["$V", "10.0.0.1:70"]`, one: "[2001:DB8:0::1]:80", other: "10.0.0.2:80-82"},
		{service: `proxy_protocol: {accept: "$V", trusted: [10.0.0.2]}`, one: "v1", other: "any"},
		{pool: `balance: "$V"`, one: "p2c", other: "first"},
		{pool: `balance: maglev, hash: {bound: "$V"}`, one: "1.50", other: "2"},
		{pool: `queue: {size: "$V"}, max_connections: 9`, one: "1k", other: "2"},
		{pool: `retry_budget: {percent: "$V"}`, one: "1", other: "2"},
		{pool: `passive: {base: "$V"}`, one: "60s", other: "2m"},
		{pool: `on_down: close, on_remove: "$V"`, one: "drain 600s", other: "close"},
		{pool: `backends: ["$V", 10.0.0.1:80]`, one: "10.0.0.2:80", other: "unix:/run/x"},
		{pool: `backends: [10.0.0.1:80, "$V"]`, one: "B.Example.org:80", other: "c.example.org:81"},
		{pool: `backends: [{address: "10.0.0.1:80", weight: "$V"}]`, one: "7", other: "70"},
		{pool: `backends: [{address: "10.0.0.1:80", name: "$V"}]`, one: "a", other: "b"},
		{pool: `max_connections: "$V"`, one: "1k", other: "7"},
		{pool: `source: "$V"`, one: "10.0.0.9", other: "10.0.0.8"},
		{pool: `panic: "$V"`, one: "1", other: "99"},
		{pool: `slow_start: "$V"`, one: "60s", other: "1s"},
		{pool: `send_proxy: "$V"`, one: "v2", other: "v1"},
		{pool: `check: {interval: "$V"}`, one: "100ms", other: "200ms"},
		{pool: `check: {type: http, http: {expect_body_regex: "$V"}}`, one: "a.c", other: "x\n"},
		{pool: `check: {type: postgres, postgres: {user: u, max_lag: "$V"}}`, one: "60s", other: "7s"},
		{pool: `check: {type: postgres, postgres: {user: u, role: "$V"}}`, one: "master", other: "replica"},
		{pool: `backends: ["a.example.org:80"], resolve: {servers: ["$V"]}`, one: "10.0.0.53", other: "[::1]:53"},
		{pool: `backends: ["a.example.org:80"], resolve: {max_ttl: "$V"}`, one: "60s", other: "2m"},
	}
	for _, c := range cases {
		t.Run(c.service+c.pool, func(t *testing.T) {
			file := func(service, pool string) *File {
				if !strings.Contains(service, "listen:") {
					service = `listen: ["10.0.0.1:70"], ` + service
				}
				if !strings.Contains(pool, "backends:") {
					pool = `backends: ["10.0.0.1:80"], ` + pool
				}
				return parsed(t, fmt.Sprintf("services: {web: {pool: pg, %s}}\npools: {pg: {%s}}\n",
					strings.ReplaceAll(service, "$V", "${V}"), strings.ReplaceAll(pool, "$V", "${V}")))
			}
			plain := file("", "")
			says := func(value string) string {
				t.Setenv("V", value)
				with := file(c.service, c.pool)
				return strings.Join(append(Diff(plain, with), Diff(with, plain)...), "\n")
			}
			one, other := says(c.one), says(c.other)
			if diff := cmp.Diff(one, other); diff != "" || !strings.Contains(one, "${V}") {
				t.Errorf("of %s it says\n%s\n(-%[1]s +%s)\n%s", c.one, one, c.other, diff)
			}
		})
	}
}
