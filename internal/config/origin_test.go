package config

import (
	"slices"
	"strings"
	"testing"
)

// TestTold: what is told of a value is how it is written where a variable is in it: its
// own, inherited, in a list that is replaced as a whole, or by way of another key.
func TestTold(t *testing.T) {
	t.Setenv("T", "600s")
	t.Setenv("N", "5")
	t.Setenv("A", "10.0.0.9:70-72")
	t.Setenv("B", "10.0.0.2:80")
	f, err := Parse("x.yaml", []byte(`
defaults:
  services: {timeouts: {idle: "${T}", half_close: "${T}"}, access: {allow: [10.0.0.0/8, "10.0.0.${N}"]}}
  pools: {check: {interval: "0.${N}s"}, max_connections: "${N}"}
services:
  one: {listen: ["10.0.0.1:70", "${A}"], pool: pg, timeouts: {idle: 1s}}
  two: {listen: ["10.0.0.1:90"], sni: {A.example.org: [{pool: pg, alpn: ["h${N}"]}, pg]}, access: {allow: [10.0.0.7]}}
pools:
  pg:
    backends: [a.example.org:80, 10.0.0.1:80, "${B}", {address: "b.example.org:80", max_connections: 2}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"services.one.timeouts.idle": "", "services.one.timeouts.half_close": "${T}", "services.two.timeouts.idle": "${T}",
		"services.one.access.allow[1]": "10.0.0.${N}", "services.one.access.allow[0]": "", "services.two.access.allow[1]": "",
		"services.one.listen[0]": "", "services.one.listen[1]": "${A}", "services.one.listen[3]": "${A}", "services.one.listen[4]": "",
		"pools.pg.check.interval": "0.${N}s", "pools.pg.check.fast_interval": "0.${N}s", "pools.pg.max_connections": "${N}",
		"pools.pg.backends[0].max_connections": "${N}", "pools.pg.backends[3].max_connections": "",
		"pools.pg.backends[2].address": "${B}", "pools.pg.backends[2].name": "${B}", "pools.pg.backends[1].address": "",
	} {
		if got := f.Told(path, ""); got != want {
			t.Errorf("of %s is told %q, want %q", path, got, want)
		}
	}
	if got := f.ToldRule(f.Services[1], 0); len(got) != 1 || got[0] != "h${N}" {
		t.Errorf("the rule is for %q", got)
	}
	if at, named := f.Pools[0].Items(); !slices.Equal(at, []string{"backends[1]", "backends[2]"}) || !slices.Equal(named, []string{"backends[0]", "backends[3]"}) {
		t.Errorf("the places of the backends are %v, and %v of names", at, named)
	}
}

// TestErrorsHideByOrigin: an error is the same whatever the variable holds, as long as
// that is wrong in the same way: also where a value is short, is named in another form,
// or is wrong beside another key only.
func TestErrorsHideByOrigin(t *testing.T) {
	for _, c := range []struct{ service, pool, one, other string }{
		{service: `sni: {a.example.org: "$V"}`, one: "pgg", other: "nothing"},
		{service: `timeouts: {connect: "$V", connect_total: 1s}`, one: "90s", other: "2m"},
		{service: `timeouts: {connect: 1h, connect_total: "$V"}`, one: "600s", other: "2m"},
		{service: `listen: ["$V"]`, one: "224.0.0.1:80", other: "[FF02::1]:80"},
		{service: `listen: ["$V"]`, one: "ab:80", other: "lb.example.org:81"},
		{service: `listen: ["10.0.0.1:70", "$V"]`, one: "0.0.0.0:70", other: "10.0.0.1:70"},
		{service: `access: {allow: ["$V"]}`, one: "10.1.2.3/8", other: "2001:DB8::1/32"},
		{service: `access: {allow: [10.1.0.0/16, "2001:db8::/32", "$V"]}`, one: "10.1.0.0/16", other: "2001:DB8:0::/32"},
		{pool: `backends: ["$V"]`, one: "0.0.0.0:1", other: "[::]:22"},
		{pool: `backends: ["$V"]`, one: "unix:ab", other: "unix:relative/path"},
		{pool: `backends: ["[2001:db8::1]:80", "$V"]`, one: "[2001:db8::1]:80", other: "[2001:DB8:0::1]:80"},
		{pool: `backends: ["[2001:db8::2]:80"], source: "$V"`, one: "10.0.0.1", other: "10.2.0.2"},
		{pool: `backends: ["$V"], source: 10.0.0.9`, one: "[2001:DB8:0::1]:80", other: "[::1]:80"},
		{pool: `balance: "$V", hash: {mask4: 24}`, one: "p2c", other: "random"},
		{pool: `passive: {base: "$V", max: 1s}`, one: "600s", other: "2m"},
		{pool: `check: {interval: 1s, fast_interval: "$V"}`, one: "120s", other: "2m1s"},
		{pool: `check: {type: "$V", http: {path: /}}`, one: "tcp", other: "tls"},
		{pool: `check: {port: "$V"}`, one: "70000", other: "-1"},
		{pool: `check: {timeout: "$V"}`, one: "7", other: "80"},
		{pool: `on_remove: "$V"`, one: "drain x", other: "drain y2"},
		{service: `tls: {certificates: [{cert: /a, key: /k}], alpn: ["$V", "$V"]}`, one: "h2", other: "mqtt"},
		{service: `tls: {certificates: [{cert: "$V", key: /k}, {cert: "$V", key: /l}]}`, one: "/a", other: "/b/c"},
		{service: `access: {deny_files: ["$V", "$V"]}`, one: "/a", other: "/b/c"},
		{pool: `check: {type: dns, dns: {name: a, answer: "$V"}}`, one: "x y", other: "1.2.3"},
		{pool: `proxy_tlvs: {ssl: false}, send_proxy: "$V"`, one: "v1", other: "off"},
		{pool: `backends: ["a.example.org:80"], resolve: {min_ttl: "$V", max_ttl: 1s}`, one: "120s", other: "2h"},
		{pool: `backends: ["127.0.0.1:7000", "$V"]`, one: "127.0.0.1:7000", other: "127.0.0.1:7000"},
	} {
		service, pool := c.service, c.pool
		if !strings.Contains(service, "listen:") {
			service = `listen: ["10.0.0.1:70"], ` + service
		}
		if !strings.Contains(pool, "backends:") {
			pool = `backends: ["10.0.0.1:80"], ` + pool
		}
		if !strings.Contains(service, "sni:") {
			service = "pool: pg, " + service
		}
		text := "services: {web: {" + service + "}}\npools: {pg: {" + pool + "}}\n"
		said := func(value string) string {
			t.Setenv("V", value)
			_, err := Parse("x.yaml", []byte(strings.ReplaceAll(text, "$V", "${V}")))
			if err == nil {
				t.Fatalf("%s with %q is valid", text, value)
			}
			return err.Error()
		}
		if one, other := said(c.one), said(c.other); one != other {
			t.Errorf("%sof %q it says\n%s\nand of %q\n%s", text, c.one, one, c.other, other)
		}
	}
}
