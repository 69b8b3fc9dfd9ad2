package daemon

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
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

func parse(t *testing.T, yaml string) *config.File {
	t.Helper()
	f, err := config.Parse("test.yaml", []byte(yaml))
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
				"pool redis: check.http.expect_status 200-399 -> 200,301-303",
				"pool redis: passive.failures 5 -> 0",
			},
		},
		{
			[]string{"services:", "log: {level: debug, access: none}\nruntime: {drain: 1m}\nadmin: {http: \"\"}\nservices:"},
			[]string{
				`admin: http 127.0.0.1:9905 -> ""`,
				"log: level INFO -> DEBUG",
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
		if d := cmp.Diff(c.want, diff(parse(t, sample), parse(t, text))); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.edits, d)
		}
	}
}

// Whatever differs between two configurations is said: every single value is
// changed in turn, found by reflection, so that a field added later cannot be
// forgotten.
func TestDiffSaysEverything(t *testing.T) {
	full := func() *config.File {
		f := parse(t, sample)
		f.Pools[1].Check.HTTP.ExpectStatus = []health.StatusRange{{Lo: 200, Hi: 399}}
		f.Pools[1].Source = netip.MustParseAddr("10.0.0.9")
		return f
	}
	unsaid := map[string]bool{
		"Runtime.Workers": true, // apply says it
		// It is of check.initial, which is said.
		"Pools.Balance.Backends.Initial": true,
		// A name that occurs in several places is said in one.
		"Services.TCP.Name": true,
	}
	n := 0
	var walk func(v reflect.Value, path string, file *config.File)
	walk = func(v reflect.Value, path string, file *config.File) {
		change, ok := changed(v.Interface())
		switch {
		case ok:
			if unsaid[path] {
				return
			}
			n++
			old := v.Interface()
			v.Set(reflect.ValueOf(change))
			if lines := diff(full(), file); len(lines) == 0 {
				t.Errorf("%s: nothing is said", path)
			}
			v.Set(reflect.ValueOf(old))
		case v.Kind() == reflect.Slice:
			if v.Len() == 0 {
				t.Errorf("%s is empty", path)
			}
			for i := range v.Len() {
				walk(v.Index(i), path, file)
			}
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), file)
			}
		default:
			t.Errorf("%s: what is a %s?", path, v.Type())
		}
	}
	file := full()
	walk(reflect.ValueOf(file).Elem(), "", file)
	if d := diff(full(), file); len(d) != 0 {
		t.Errorf("afterwards: %v", d)
	}
	if n < 80 {
		t.Errorf("only %d values", n)
	}
}

// changed returns another value of the type of v, if that is a single value.
func changed(v any) (any, bool) {
	switch v := v.(type) {
	case netip.Addr:
		return v.Next(), true
	case balance.Address:
		return balance.Address{Unix: "/another"}, true
	case tcp.Listen:
		return tcp.Listen{Addr: v.Addr, V6Only: !v.V6Only}, true
	case time.Duration:
		return v + 1, true
	case string:
		return v + "x", true
	case bool:
		return !v, true
	}
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return reflect.ValueOf(r.Int() + 1).Convert(r.Type()).Interface(), true
	case r.CanUint():
		return reflect.ValueOf(r.Uint() + 1).Convert(r.Type()).Interface(), true
	case r.CanFloat():
		return r.Float() + 1, true
	}
	return nil, false
}

func TestListenTexts(t *testing.T) {
	listen := func(addrs ...string) (list []tcp.Listen) {
		for _, a := range addrs {
			a, only := strings.CutSuffix(a, " only")
			list = append(list, tcp.Listen{Addr: netip.MustParseAddrPort(a), V6Only: only})
		}
		return list
	}
	for _, c := range []struct {
		list []tcp.Listen
		want string
	}{
		{nil, "[]"},
		{listen("[::]:80"), "[:80]"},
		{listen("[::]:80 only"), "[[::]:80]"},
		{listen("10.0.0.1:80", "10.0.0.1:81", "10.0.0.1:82", "10.0.0.1:84", "10.0.0.2:85"), "[10.0.0.1:80-82 10.0.0.1:84 10.0.0.2:85]"},
		{listen("[::]:80", "[::]:81", "[::]:82 only"), "[:80-81 [::]:82]"},
		{listen("10.0.0.1:65535", "10.0.0.1:1"), "[10.0.0.1:65535 10.0.0.1:1]"},
	} {
		if got := fmt.Sprint(listenTexts(c.list)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
