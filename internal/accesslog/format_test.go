package accesslog

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/l4"
)

func TestGoldenLines(t *testing.T) {
	east := time.FixedZone("", 2*3600)
	for name, tt := range map[string]struct {
		change       func(*l4.Session)
		tcplog, json string
	}{
		"ok": {
			func(*l4.Session) {},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/db1 0.012/0.310/5007.118 212 --/ok 3/2/2/1/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"db1","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":1.000,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"retries":0,"queue_pos":0,"strategy":"","outcome":"ok","termination":"--","by":"nobody",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1}`,
		},
		"IPv6, a reset, another time zone": {
			func(s *l4.Session) {
				s.Flow.Client = netip.MustParseAddrPort("[2001:db8::7]:443")
				s.Flow.VIP = netip.MustParseAddrPort("[fe80::1%eth0]:5432")
				s.Start = time.Date(2026, time.July, 1, 23, 59, 59, 1_234_567, east)
				s.Outcome, s.By, s.Retries = l4.ClientReset, l4.Client, 2
				s.FirstByte = l4.Unreached
			},
			`2001:db8::7:443 [01/Jul/2026:23:59:59.001] postgres pg/db1 0.012/0.310/5007.118 212 CD/client_reset 3/2/2/1/2 0/0`,
			`{"time":"2026-07-01T23:59:59.001234567+02:00","service":"postgres","pool":"pg","backend":"db1","proto":"tcp",` +
				`"client":"2001:db8::7","client_port":443,"vip":"fe80::1%eth0","vip_port":5432,` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":-1,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"retries":2,"queue_pos":0,"strategy":"","outcome":"client_reset","termination":"CD","by":"client",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1}`,
		},
		"nobody to go to": {
			func(s *l4.Session) {
				s.Backend, s.Outcome, s.By = "", l4.NoBackend, l4.Proxy
				s.Wait, s.Connect, s.FirstByte = l4.Unreached, l4.Unreached, l4.Unreached
				s.Total, s.BytesIn, s.BytesOut, s.BackendConn = 9*time.Microsecond, 0, 0, 0
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/<NOSRV> -1/-1/0.009 0 SC/no_backend 3/2/2/0/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,` +
				`"wait_ms":-1,"connect_ms":-1,"first_byte_ms":-1,"total_ms":0.009,` +
				`"bytes_in":0,"bytes_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"no_backend","termination":"SC","by":"proxy",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":0}`,
		},
		"waited in vain": {
			func(s *l4.Session) {
				s.Backend, s.Outcome, s.By, s.QueuePos, s.Strategy = "", l4.QueueTimeout, l4.Proxy, 17, "b"
				s.Wait, s.Connect, s.FirstByte = l4.Unreached, l4.Unreached, l4.Unreached
				s.Total, s.BytesIn, s.BytesOut, s.BackendConn = 5*time.Second, 0, 0, 0
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/<NOSRV> -1/-1/5000.000 0 sQ/queue_timeout 3/2/2/0/0 0/17`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,` +
				`"wait_ms":-1,"connect_ms":-1,"first_byte_ms":-1,"total_ms":5000.000,` +
				`"bytes_in":0,"bytes_out":0,"retries":0,"queue_pos":17,"strategy":"b","outcome":"queue_timeout","termination":"sQ","by":"proxy",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":0}`,
		},
		"names no configuration allows": {
			func(s *l4.Session) {
				s.Service, s.Pool = "a b\n\"", ""
				s.Backend = "unix:/run/x y#1\xff\u00e9"
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] a#20b#0A" -/unix:/run/x#20y#231#FF#C3#A9 0.012/0.310/5007.118 212 --/ok 3/2/2/1/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"a b\u000A\"","pool":"","backend":"unix:/run/x y#1` + "\ufffd\u00e9" + `","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":1.000,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"retries":0,"queue_pos":0,"strategy":"","outcome":"ok","termination":"--","by":"nobody",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1}`,
		},
		"nothing known": {
			func(s *l4.Session) { *s = l4.Session{} },
			`-:0 [01/Jan/0001:00:00:00.000] - -/<NOSRV> 0.000/0.000/0.000 0 --/ok 0/0/0/0/0 0/0`,
			`{"time":"0001-01-01T00:00:00Z","service":"","pool":"","backend":"","proto":"tcp",` +
				`"client":"-","client_port":0,"vip":"-","vip_port":0,` +
				`"wait_ms":0.000,"connect_ms":0.000,"first_byte_ms":0.000,"total_ms":0.000,` +
				`"bytes_in":0,"bytes_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"ok","termination":"--","by":"nobody",` +
				`"conns":0,"service_conns":0,"pool_conns":0,"backend_conns":0}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := session(1)
			tt.change(s)
			if d := cmp.Diff(tt.tcplog+"\n", string(appendTCPLog(nil, s))); d != "" {
				t.Error("tcplog:", d)
			}
			if d := cmp.Diff(tt.json+"\n", string(appendJSON(nil, s))); d != "" {
				t.Error("json:", d)
			}
		})
	}
}

// The letters for every outcome in every phase, each with the side that ends it
// so. The table is complete: a new outcome fails here until it has letters.
func TestTermination(t *testing.T) {
	type phases [3]string // no backend chosen, connecting, relaying
	want := map[l4.Outcome]map[l4.Side]phases{
		l4.OK:               {l4.Nobody: {"--", "--", "--"}, l4.Client: {"--", "--", "--"}},
		l4.ClientReset:      {l4.Client: {"CQ", "CC", "CD"}},
		l4.BackendReset:     {l4.Backend: {"SQ", "SC", "SD"}},
		l4.Idle:             {l4.Proxy: {"cQ", "cC", "cD"}, l4.Backend: {"sQ", "sC", "sD"}},
		l4.HalfCloseTimeout: {l4.Client: {"cL", "cL", "cL"}, l4.Backend: {"sQ", "sC", "sD"}, l4.Proxy: {"sQ", "sC", "sD"}},
		l4.NoBackend:        {l4.Proxy: {"SC", "SC", "SC"}},
		l4.ConnectFailed:    {l4.Backend: {"SC", "SC", "SC"}},
		l4.ConnectTimeout:   {l4.Backend: {"sC", "sC", "sC"}},
		l4.RefusedLimit:     {l4.Proxy: {"PC", "PC", "PC"}},
		l4.QueueTimeout:     {l4.Proxy: {"sQ", "sQ", "sQ"}},
		l4.QueueFull:        {l4.Proxy: {"PQ", "PQ", "PQ"}},
		l4.BackendDown:      {l4.Proxy: {"DQ", "DC", "DD"}},
		l4.Drained:          {l4.Proxy: {"KQ", "KC", "KD"}},
		l4.Killed:           {l4.Proxy: {"KQ", "KC", "KD"}},
		l4.NoLocalPort:      {l4.Proxy: {"RC", "RC", "RC"}},
		l4.NoDescriptors:    {l4.Proxy: {"RC", "RC", "RC"}},
	}
	for o := range l4.Outcome(l4.NumOutcomes) {
		if want[o] == nil {
			t.Errorf("no letters are laid down for %v", o)
		}
		for by, letters := range want[o] {
			for i, s := range []l4.Session{
				{Wait: l4.Unreached, Connect: l4.Unreached},
				{Wait: 1, Connect: l4.Unreached},
				{Wait: 1, Connect: 1},
			} {
				s.Outcome, s.By = o, by
				if why, phase := termination(&s); string([]byte{why, phase}) != letters[i] {
					t.Errorf("%v by %v in phase %d: %c%c, want %s", o, by, i, why, phase, letters[i])
				}
			}
		}
	}
}

// What a parser of HAProxy's log would require, apart from times being decimal
// and the word after the letters.
var haproxyLine = regexp.MustCompile(`^[0-9a-fA-F:.%\S]+:\d+ \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d\.\d{3}\] \S+ \S+/\S+ ` +
	`(?:-1|\d+\.\d{3})/(?:-1|\d+\.\d{3})/(?:-1|\d+\.\d{3}) \d+ [-CScsPRDK][-QCDL]/[a-z_]+ -?\d+/-?\d+/-?\d+/-?\d+/-?\d+ \d+/\d+\n$`)

// Whatever the names, a line is one line, and JSON is valid and says the same.
func FuzzLine(f *testing.F) {
	f.Add("svc", "pool", "backend", "eth0", int64(5), int64(-1), uint64(7), 3, uint8(1))
	f.Add("a b", "\n\r\x00", "\"\\\u2028", "e\" \nth", int64(-1), int64(1<<62), uint64(1<<63), -3, uint8(13))
	f.Add("\xff\xfe", "#", "<NOSRV>", "", int64(0), int64(999), uint64(0), 0, uint8(4))
	f.Fuzz(func(t *testing.T, service, pool, backend, zone string, d1, d2 int64, n uint64, m int, o uint8) {
		s := session(1)
		s.Service, s.Pool, s.Backend = service, pool, backend
		s.Flow.Client = netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(zone), uint16(n))
		s.Wait, s.Connect, s.FirstByte, s.Total = time.Duration(d1), time.Duration(d2), time.Duration(d2), time.Duration(d1)
		s.BytesIn, s.BytesOut, s.Retries, s.ActConn = n, n, m, int64(m)
		s.Outcome, s.By = l4.Outcome(int(o)%l4.NumOutcomes), l4.Side(o%4)

		line := appendTCPLog(nil, s)
		if !haproxyLine.Match(line) || bytes.Count(line, []byte(" ")) != 8 || bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Errorf("tcplog: %q", line)
		}

		line = appendJSON(nil, s)
		if bytes.IndexByte(line, '\n') != len(line)-1 || !utf8.Valid(line) {
			t.Errorf("json: %q", line)
		}
		var v struct {
			Service, Pool, Backend, Client string
			BytesIn                        uint64  `json:"bytes_in"`
			Wait                           float64 `json:"wait_ms"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		clean := func(s string) string { return string([]rune(s)) }
		if v.Service != clean(service) || v.Pool != clean(pool) || v.Backend != clean(backend) || v.BytesIn != n ||
			!strings.HasPrefix(v.Client, "fe80::1") || (v.Wait < 0) != (d1 < 0) {
			t.Errorf("%+v from %q", v, line)
		}
	})
}

func BenchmarkFormat(b *testing.B) {
	for name, f := range appenders {
		b.Run(name, func(b *testing.B) {
			s := session(1)
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = f(buf[:0], s)
			}
		})
	}
}
