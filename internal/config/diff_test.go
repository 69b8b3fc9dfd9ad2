package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

const sample = `
services:
  pg: {listen: [":5432", "127.0.0.1:5000-5019"], pool: pg}
  redis: {listen: ["[::1]:6379"], pool: redis}
pools:
  pg:
    backends:
      - {name: db1, address: "10.0.0.1:5432"}
      - {name: db2, address: "10.0.0.2:5432"}
  redis:
    check: {type: http}
    backends: ["10.0.0.3:6379", "unix:/run/redis.sock"]
`

func parsed(t *testing.T, yaml string) *File {
	t.Helper()
	f, err := Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		edits []string // old, new, old, new, ...
		want  []string
	}{
		{nil, nil},
		{
			[]string{`["[::1]:6379"], pool: redis`, `["[::1]:6379"], pool: pg, timeouts: {idle: 5m}, max_connections: 7`},
			[]string{
				"service redis: pool redis -> pg",
				"service redis: max_connections 0 -> 7",
				"service redis: timeouts.idle 10m0s -> 5m0s",
			},
		},
		{
			[]string{`":5432", "127.0.0.1:5000-5019"`, `":5432", "127.0.0.1:5010-5029", "127.0.0.1:80"`},
			[]string{
				"service pg: listener 127.0.0.1:5020-5029, 127.0.0.1:80 added",
				"service pg: listener 127.0.0.1:5000-5009 removed",
			},
		},
		{
			[]string{`":5432", "127.0.0.1:5000-5019"`, `"127.0.0.1:1", "127.0.0.1:3", "127.0.0.1:5", "127.0.0.1:7", "127.0.0.1:9", "127.0.0.1:11", "127.0.0.1:13", "127.0.0.1:15", "127.0.0.1:17", "127.0.0.1:19"`},
			[]string{
				"service pg: listener 127.0.0.1:1, 127.0.0.1:3, 127.0.0.1:5, 127.0.0.1:7, 127.0.0.1:9, 127.0.0.1:11, 127.0.0.1:13, 127.0.0.1:15 and 2 more added",
				"service pg: listener :5432, 127.0.0.1:5000-5019 removed",
			},
		},
		{
			[]string{"  redis: {listen", "  cache: {listen"},
			[]string{"service cache: added on [::1]:6379, pool redis", "service redis: removed"},
		},
		{
			[]string{"pool: redis", "pool: cache", "  redis:\n", "  cache:\n"},
			[]string{"service redis: pool redis -> cache", "pool cache: added with 2 backends", "pool redis: removed"},
		},
		{
			[]string{
				"      - {name: db2, address: \"10.0.0.2:5432\"}\n",
				"      - {name: db3, address: \"10.0.0.4:5432\", weight: 0}\n      - \"10.0.0.5:5432\"\n",
				"name: db1", "name: main, weight: 50, backup: true, max_connections: 3",
			},
			[]string{
				"pool pg: backend main: was called db1",
				"pool pg: backend main: weight 100 -> 50",
				"pool pg: backend main: backup false -> true",
				"pool pg: backend main: max_connections 0 -> 3",
				"pool pg: backend db3 (10.0.0.4:5432) added",
				"pool pg: backend 10.0.0.5:5432 added",
				"pool pg: backend db2 (10.0.0.2:5432) removed",
			},
		},
		{
			[]string{`["10.0.0.3:6379", "unix:/run/redis.sock"]`, `["unix:/run/redis.sock", "10.0.0.3:6379"]`},
			[]string{"pool redis: backends in another order"},
		},
		{
			[]string{"check: {type: http}", "on_down: close\n    passive: {failures: 0}\n    check: {type: http, rise: 5, initial: down, http: {host: a, expect_status: \"200,301-303\"}}"},
			[]string{
				"pool redis: on_down keep -> close",
				"pool redis: check.rise 2 -> 5",
				"pool redis: check.initial up -> down",
				`pool redis: check.http.host "" -> a`,
				"pool redis: check.http.expect_status has changed",
				"pool redis: passive.failures 5 -> 0",
			},
		},
		{
			[]string{"services:", "log: {level: debug, access: none}\nruntime: {drain: 1m}\nadmin: {http: \"\"}\nservices:"},
			[]string{
				`admin: http 127.0.0.1:9905 -> ""`,
				"log: level info -> debug",
				"log: access stdout -> none",
				"runtime: drain 30s -> 1m0s",
			},
		},
	} {
		text := sample
		for i := 0; i < len(c.edits); i += 2 {
			if strings.Count(text, c.edits[i]) != 1 {
				t.Fatalf("%q is not there once", c.edits[i])
			}
			text = strings.Replace(text, c.edits[i], c.edits[i+1], 1)
		}
		if d := cmp.Diff(c.want, Diff(parsed(t, sample), parsed(t, text))); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.edits, d)
		}
	}
}

// A change may be logged anywhere, a secret may not, nor what may hold one.
func TestDiffKeepsSecrets(t *testing.T) {
	file := func(secret, user string) *File {
		return parsed(t, strings.ReplaceAll(`
services: {}
runtime: {allow_exec: true}
defaults: {pools: {backends: [10.0.0.1:80]}}
pools:
  exec: {check: {type: exec, exec: {command: [/bin/ask, SECRET]}}}
  expect: {check: {type: expect, expect: [{send: SECRET}, {expect: SECRET}]}}
  http: {check: {type: http, http: {headers: {Authorization: SECRET}}}}
  pg: {check: {type: postgres, postgres: {user: `+user+`, password: SECRET}}}
  several: {checks: [{type: redis, redis: {password: SECRET}}]}
  udp: {check: {type: udp, udp: {send: SECRET, expect: pong}}}
`, "SECRET", secret))
	}
	want := []string{
		"pool exec: check.exec.command has changed",
		"pool expect: check.expect has changed",
		"pool http: check.http.headers has changed",
		"pool pg: check.postgres.user a -> b",
		"pool pg: check.postgres.password has changed",
		"pool several: checks has changed",
		"pool udp: check.udp.send has changed",
	}
	if diff := cmp.Diff(want, Diff(file("one", "a"), file("other", "b"))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// unreported are the fields whose change is not reported, and why.
var unreported = map[string]string{
	"Runtime.Workers":                "apply says it, as long as it is so",
	"Services.TCP":                   "a service without has UDP, which is said as protocol",
	"Services.UDP":                   "a service without has TCP, which is said as protocol",
	"Services.TCP.Name":              "it is Services.Name",
	"Services.UDP.Name":              "it is Services.Name",
	"Pools.Check.Proxy":              "it is of send_proxy",
	"Pools.Check.Source":             "it is of source",
	"Pools.Passive.Checked":          "it is of check.type",
	"Pools.Check.Exec.Pool":          "it is the pool's name",
	"Pools.Check.UDP.Hex":            "it is of how Send is written",
	"Pools.Check.UDP.Expect.Hex":     "it is of how Text is written",
	"Pools.OnRemove.After":           "it is nothing without Close",
	"Pools.Balance.Seed":             "it is of cluster.secret",
	"Pools.UDP":                      "it is of the services' protocols",
	"Pools.Balance.Backends.Initial": "it is of check.initial",
	"Variables":                      "what they are in is said, and what they hold is secret",
	"Origins":                        "it is of how values are written, not of what they are",
}

// Whatever else differs between two configurations is said: every single value is
// changed in turn, found by reflection, so that none can be forgotten.
func TestDiffSaysEverything(t *testing.T) {
	for _, text := range []string{sample, kinds} {
		saysEverything(t, text)
	}
}

func saysEverything(t *testing.T, text string) {
	before, file, n := parsed(t, text), parsed(t, text), 0
	try := func(path string, v reflect.Value, other any) {
		if unreported[path] != "" {
			return
		}
		n++
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(reflect.ValueOf(other).Convert(v.Type()))
		if lines := Diff(before, file); len(lines) == 0 {
			t.Errorf("%s: nothing is said", path)
		}
		v.Set(old)
	}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch special := v.Interface().(type) {
		case netip.Addr:
			try(path, v, netip.MustParseAddr("192.0.2.1"))
			return
		case netip.Prefix:
			try(path, v, netip.MustParsePrefix("198.51.100.0/24"))
			return
		case balance.Address:
			try(path, v, balance.Address{Unix: "/another"})
			return
		case l4.Listen:
			try(path, v, l4.Listen{Addr: special.Addr, V6Only: !special.V6Only})
			return
		}
		switch {
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), v.Field(i))
			}
		case v.Kind() == reflect.Slice && v.Len() > 0:
			for i := range v.Len() {
				walk(path, v.Index(i))
			}
		case v.Kind() == reflect.Slice:
			try(path, v, reflect.MakeSlice(v.Type(), 1, 1).Interface())
		case v.Kind() == reflect.Map:
			try(path, v, reflect.MakeMap(v.Type()).Interface())
		case v.Kind() == reflect.Pointer && !v.IsNil():
			try(path, v, reflect.Zero(v.Type()).Interface())
			walk(path, v.Elem())
		case v.Kind() == reflect.Pointer:
			try(path, v, reflect.New(v.Type().Elem()).Interface())
		case v.Kind() == reflect.String:
			try(path, v, v.String()+"x")
		case v.Kind() == reflect.Bool:
			try(path, v, !v.Bool())
		case v.CanInt():
			try(path, v, v.Int()+1)
		case v.CanUint():
			try(path, v, v.Uint()+1)
		case v.CanFloat():
			try(path, v, v.Float()+1)
		default:
			t.Errorf("%s: what is a %s?", path, v.Type())
		}
	}
	walk("", reflect.ValueOf(file).Elem())
	if n < 80 {
		t.Errorf("only %d values", n)
	}
}

func TestListenTexts(t *testing.T) {
	listen := func(addrs ...string) (list []l4.Listen) {
		for _, a := range addrs {
			a, only := strings.CutSuffix(a, " only")
			list = append(list, l4.Listen{Addr: netip.MustParseAddrPort(a), V6Only: only})
		}
		return list
	}
	for _, c := range []struct {
		list []l4.Listen
		want string
	}{
		{nil, "[]"},
		{listen("[::]:80"), "[:80]"},
		{listen("[::]:80 only"), "[[::]:80]"},
		{listen("10.0.0.1:80", "10.0.0.1:81", "10.0.0.1:82", "10.0.0.1:84", "10.0.0.2:85"), "[10.0.0.1:80-82 10.0.0.1:84 10.0.0.2:85]"},
		{listen("[::]:80", "[::]:81", "[::]:82 only"), "[:80-81 [::]:82]"},
		{listen("10.0.0.1:65535", "10.0.0.1:1"), "[10.0.0.1:65535 10.0.0.1:1]"},
	} {
		if got := fmt.Sprint(ListenTexts(c.list)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
