package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
)

// Of check and checks, what is written closer to the pool counts.
func TestChecksAndInheritance(t *testing.T) {
	t.Parallel()
	f, err := config.Parse("poise.yaml", []byte(`
services: {}
defaults:
  pools:
    backends: [10.0.0.1:80]
    source: 10.0.0.9
    check: {interval: 7s, port: 81, fall: 5}
pools:
  list:
    checks: [{type: tcp}, {type: http, http: {path: /a}}]
    check: {timeout: 4s}
  one:
    check: {type: tls}
`))
	if err != nil {
		t.Fatal(err)
	}
	list, one := f.Pools[0].Check, f.Pools[1].Check
	if list.Type != health.AllOf || list.Port != 0 || list.Interval.Seconds() != 7 || list.Timeout.Seconds() != 4 || list.Fall != 5 ||
		len(list.All) != 2 || list.All[0].Type != "tcp" || list.All[0].Port != 0 || list.All[1].HTTP.Path != "/a" || list.Source.String() != "10.0.0.9" {
		t.Errorf("list: %+v", list)
	}
	if one.Type != "tls" || one.Port != 81 || one.Interval.Seconds() != 7 || one.Source.String() != "10.0.0.9" || one.All != nil {
		t.Errorf("one: %+v", one)
	}

	f, err = config.Parse("poise.yaml", []byte(`
services: {}
defaults: {pools: {backends: [10.0.0.1:80], checks: [{type: tcp}, {type: smtp}]}}
pools:
  inherits: {}
  own: {check: {type: http}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if c := f.Pools[0].Check; c.Type != health.AllOf || len(c.All) != 2 {
		t.Errorf("inherits: %+v", c)
	}
	if c := f.Pools[1].Check; c.Type != "http" || c.All != nil {
		t.Errorf("own: %+v", c)
	}
}

// Two pools that inherit one list must not share what is filled in for each.
func TestInheritedChecksAreNotShared(t *testing.T) {
	t.Parallel()
	f, err := config.Parse("poise.yaml", []byte(`
services: {}
runtime: {allow_exec: true}
defaults: {pools: {backends: [10.0.0.1:80], checks: [{type: exec, exec: {command: [/bin/true]}}]}}
pools: {a: {}, b: {}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Pools {
		if got := p.Check.All[0].Exec.Pool; got != p.Balance.Name {
			t.Errorf("pool %s: the check says it is of %s", p.Balance.Name, got)
		}
	}
}

// Every type that can be configured has a prober, and every one with a prober can
// be configured.
func TestEveryCheckTypeCanBeWritten(t *testing.T) {
	t.Parallel()
	needs := map[string]string{
		"expect":   `, expect: [{expect: a}]`,
		"udp":      `, udp: {send: a, expect: b}`,
		"exec":     `, exec: {command: [/bin/true]}`,
		"dns":      `, dns: {name: example.org}`,
		"postgres": `, postgres: {user: poise}`,
		"mysql":    `, mysql: {user: poise}`,
	}
	for _, check := range health.Checks {
		typ := check.Word
		f, err := config.Parse("poise.yaml", []byte("services: {}\nruntime: {allow_exec: true}\npools: {a: {backends: [10.0.0.1:80], check: {type: "+typ+needs[typ]+"}}}\n"))
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		if got := f.Pools[0].Check.Type; got != typ {
			t.Errorf("type %s is read as %s", typ, got)
		}
		if p := f.Pools[0].Check.Prober("tcp", "10.0.0.1:80"); (p == nil) != (typ == "none") {
			t.Errorf("%s: prober %v", typ, p)
		}
	}
	_, err := config.Parse("poise.yaml", []byte("services: {}\npools: {a: {backends: [10.0.0.1:80], check: {type: all}}}\n"))
	if err == nil || !strings.Contains(err.Error(), `"all" is not known here`) {
		t.Errorf("type all: %v", err)
	}
}

// Text, hex and escapes give the bytes they stand for.
func TestStepsAreBytes(t *testing.T) {
	t.Parallel()
	f, err := config.Parse("poise.yaml", []byte(`
services: {}
pools:
  a:
    backends: [10.0.0.1:80]
    check:
      type: expect
      expect:
        - {send: "a\r\n\x00"}
        - {send: 'a\r'}
        - {send: PING}
        - {send_hex: "0D 0a00"}
        - {expect: 250}
        - {expect_hex: "ff"}
        - {expect_regex: '^\+OK\r\n'}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []health.Step{
		{Send: "a\r\n\x00"},
		{Send: `a\r`},
		{Send: "PING"},
		{Send: "\r\n\x00", Hex: true},
		{Expect: health.Pattern{Text: "250"}},
		{Expect: health.Pattern{Text: "\xff", Hex: true}},
		{Expect: health.Pattern{Regex: `^\+OK\r\n`}},
	}
	if got := f.Pools[0].Check.Expect; !slices.Equal(got, want) {
		t.Errorf("steps (-want +got):\n%s", cmp.Diff(want, got))
	}
}
