package accesslog

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/l4"
)

func TestGoldenLines(t *testing.T) {
	east := time.FixedZone("", 2*3600)
	for name, tt := range map[string]struct {
		change      func(*l4.Session)
		poise, json string
	}{
		"ok": {
			func(*l4.Session) {},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/db1 0.012/0.310/5007.118 212 --/ok 3/2/2/1/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"db1","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":1.000,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"datagrams_in":0,"datagrams_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"ok","termination":"--","by":"nobody",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1,"tls":null}`,
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
				`"client":"2001:db8::7","client_port":443,"vip":"fe80::1%eth0","vip_port":5432,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":-1,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"datagrams_in":0,"datagrams_out":0,"retries":2,"queue_pos":0,"strategy":"","outcome":"client_reset","termination":"CD","by":"client",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1,"tls":null}`,
		},
		"nobody to go to": {
			func(s *l4.Session) {
				s.Backend, s.Outcome, s.By = "", l4.NoBackend, l4.Proxy
				s.Wait, s.Connect, s.FirstByte = l4.Unreached, l4.Unreached, l4.Unreached
				s.Total, s.BytesIn, s.BytesOut, s.BackendConn = 9*time.Microsecond, 0, 0, 0
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/<NOSRV> -1/-1/0.009 0 SC/no_backend 3/2/2/0/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":-1,"connect_ms":-1,"first_byte_ms":-1,"total_ms":0.009,` +
				`"bytes_in":0,"bytes_out":0,"datagrams_in":0,"datagrams_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"no_backend","termination":"SC","by":"proxy",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":0,"tls":null}`,
		},
		"waited in vain": {
			func(s *l4.Session) {
				s.Backend, s.Outcome, s.By, s.QueuePos, s.Strategy = "", l4.QueueTimeout, l4.Proxy, 17, "b"
				s.Wait, s.Connect, s.FirstByte = l4.Unreached, l4.Unreached, l4.Unreached
				s.Total, s.BytesIn, s.BytesOut, s.BackendConn = 5*time.Second, 0, 0, 0
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/<NOSRV> -1/-1/5000.000 0 sQ/queue_timeout 3/2/2/0/0 0/17`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":-1,"connect_ms":-1,"first_byte_ms":-1,"total_ms":5000.000,` +
				`"bytes_in":0,"bytes_out":0,"datagrams_in":0,"datagrams_out":0,"retries":0,"queue_pos":17,"strategy":"b","outcome":"queue_timeout","termination":"sQ","by":"proxy",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":0,"tls":null}`,
		},
		"names no configuration allows": {
			func(s *l4.Session) {
				s.Service, s.Pool = "a b\n\"", ""
				s.Backend = "unix:/run/x y#1\xff\u00e9"
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] a#20b#0A" -/unix:/run/x#20y#231#FF#C3#A9 0.012/0.310/5007.118 212 --/ok 3/2/2/1/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"a b\u000A\"","pool":"","backend":"unix:/run/x y#1` + "\ufffd\u00e9" + `","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":1.000,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"datagrams_in":0,"datagrams_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"ok","termination":"--","by":"nobody",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1,"tls":null}`,
		},
		"behind a proxy, over TLS": {
			func(s *l4.Session) {
				s.Peer, s.UniqueID = netip.MustParseAddrPort("[2001:db8::10]:39000"), "4711\x00"
				s.TLS = &l4.TLS{
					Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", ServerName: "db.example.org", ALPN: "postgresql",
					Subject: `CN=worker 7,O=a \"b\"`, CommonName: "worker 7",
				}
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/db1 0.012/0.310/5007.118 212 --/ok 3/2/2/1/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"db1","proto":"tcp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,"peer":"2001:db8::10","peer_port":39000,"unique_id":"4711\u0000",` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":1.000,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"datagrams_in":0,"datagrams_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"ok","termination":"--","by":"nobody",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1,` +
				`"tls":{"version":"TLSv1.3","cipher":"TLS_AES_128_GCM_SHA256","server_name":"db.example.org","alpn":"postgresql",` +
				`"client_subject":"CN=worker 7,O=a \\\"b\\\"","client_cn":"worker 7"}}`,
		},
		"UDP": {
			func(s *l4.Session) {
				s.Flow.Proto, s.DatagramsIn, s.DatagramsOut = l4.UDP, 3, 2
				s.Outcome, s.By = l4.Idle, l4.Proxy
			},
			`192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/db1 0.012/0.310/5007.118 212 RD/idle 3/2/2/1/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"pg","backend":"db1","proto":"udp",` +
				`"client":"192.0.2.7","client_port":51234,"vip":"192.0.2.1","vip_port":5432,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":0.012,"connect_ms":0.310,"first_byte_ms":1.000,"total_ms":5007.118,` +
				`"bytes_in":100,"bytes_out":212,"datagrams_in":3,"datagrams_out":2,"retries":0,"queue_pos":0,"strategy":"","outcome":"idle","termination":"RD","by":"proxy",` +
				`"conns":3,"service_conns":2,"pool_conns":2,"backend_conns":1,"tls":null}`,
		},
		"turned away by what it sent first": {
			func(s *l4.Session) {
				s.Peer, s.Flow.Client = netip.AddrPort{}, netip.MustParseAddrPort("192.0.2.66:9")
				s.Pool, s.Backend, s.Outcome, s.By = "", "", l4.BadTLSHello, l4.Proxy
				s.Wait, s.Connect, s.FirstByte = l4.Unreached, l4.Unreached, l4.Unreached
				s.Total, s.BytesIn, s.BytesOut, s.PoolConn, s.BackendConn = time.Millisecond, 0, 0, 0, 0
			},
			`192.0.2.66:9 [06/Feb/2009:12:14:14.655] postgres -/<NOSRV> -1/-1/1.000 0 PR/bad_tls_hello 3/2/0/0/0 0/0`,
			`{"time":"2009-02-06T12:14:14.655Z","service":"postgres","pool":"","backend":"","proto":"tcp",` +
				`"client":"192.0.2.66","client_port":9,"vip":"192.0.2.1","vip_port":5432,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":-1,"connect_ms":-1,"first_byte_ms":-1,"total_ms":1.000,` +
				`"bytes_in":0,"bytes_out":0,"datagrams_in":0,"datagrams_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"bad_tls_hello","termination":"PR","by":"proxy",` +
				`"conns":3,"service_conns":2,"pool_conns":0,"backend_conns":0,"tls":null}`,
		},
		"nothing known": {
			func(s *l4.Session) { *s = l4.Session{} },
			`-:0 [01/Jan/0001:00:00:00.000] - -/<NOSRV> 0.000/0.000/0.000 0 --/ok 0/0/0/0/0 0/0`,
			`{"time":"0001-01-01T00:00:00Z","service":"","pool":"","backend":"","proto":"tcp",` +
				`"client":"-","client_port":0,"vip":"-","vip_port":0,"peer":"","peer_port":0,"unique_id":"",` +
				`"wait_ms":0.000,"connect_ms":0.000,"first_byte_ms":0.000,"total_ms":0.000,` +
				`"bytes_in":0,"bytes_out":0,"datagrams_in":0,"datagrams_out":0,"retries":0,"queue_pos":0,"strategy":"","outcome":"ok","termination":"--","by":"nobody",` +
				`"conns":0,"service_conns":0,"pool_conns":0,"backend_conns":0,"tls":null}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := session(1)
			tt.change(s)
			if d := cmp.Diff(tt.poise+"\n", string(appendPoise(nil, s))); d != "" {
				t.Error("poise:", d)
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
	type phases [4]string // saying what it wants, queued, connecting, relaying
	all := func(letters string) phases { return phases{letters, letters, letters, letters} }
	want := map[l4.Outcome]map[l4.Side]phases{
		l4.OK:                {l4.Nobody: all("--"), l4.Client: all("--")},
		l4.ClientReset:       {l4.Client: {"CR", "CQ", "CC", "CD"}},
		l4.BackendReset:      {l4.Backend: {"SR", "SQ", "SC", "SD"}},
		l4.Idle:              {l4.Proxy: {"cR", "cQ", "cC", "cD"}, l4.Backend: {"sR", "sQ", "sC", "sD"}},
		l4.HalfCloseTimeout:  {l4.Client: all("cL"), l4.Backend: {"sR", "sQ", "sC", "sD"}, l4.Proxy: {"sR", "sQ", "sC", "sD"}},
		l4.NoBackend:         {l4.Proxy: all("SC")},
		l4.ConnectFailed:     {l4.Backend: all("SC")},
		l4.ConnectTimeout:    {l4.Backend: all("sC")},
		l4.RefusedLimit:      {l4.Proxy: all("PC")},
		l4.QueueTimeout:      {l4.Proxy: all("sQ")},
		l4.QueueFull:         {l4.Proxy: all("PQ")},
		l4.BackendDown:       {l4.Proxy: {"DR", "DQ", "DC", "DD"}},
		l4.Drained:           {l4.Proxy: {"KR", "KQ", "KC", "KD"}},
		l4.Killed:            {l4.Proxy: {"KR", "KQ", "KC", "KD"}},
		l4.NoLocalPort:       {l4.Proxy: all("RC")},
		l4.NoDescriptors:     {l4.Proxy: all("RC")},
		l4.RefusedACL:        {l4.Proxy: all("PR")},
		l4.RefusedRate:       {l4.Proxy: all("PR")},
		l4.BadProxyHeader:    {l4.Proxy: all("PR"), l4.Client: all("PR")},
		l4.BadTLSHello:       {l4.Proxy: all("PR"), l4.Client: all("PR")},
		l4.FirstBytesTimeout: {l4.Proxy: all("cR"), l4.Client: all("cR")},
		l4.TLSFailed:         {l4.Proxy: all("PR"), l4.Client: all("CR")},
	}
	for o := range l4.Outcome(l4.NumOutcomes) {
		if want[o] == nil {
			t.Errorf("no letters are laid down for %v", o)
		}
		for by, letters := range want[o] {
			for i, s := range []l4.Session{
				{Wait: l4.Unreached, Connect: l4.Unreached},
				{Wait: l4.Unreached, Connect: l4.Unreached, QueuePos: 1},
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

// The line for people: HAProxy's, apart from times being decimal and the word after
// the letters.
var poiseLine = regexp.MustCompile(`^[0-9a-fA-F:.%\S]+:\d+ \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d\.\d{3}\] \S+ \S+/\S+ ` +
	`(?:-1|\d+\.\d{3})/(?:-1|\d+\.\d{3})/(?:-1|\d+\.\d{3}) \d+ [-CScsPRDK][-RQCDL]/[a-z_]+ -?\d+/-?\d+/-?\d+/-?\d+/-?\d+ \d+/\d+\n$`)

// Whatever the names, a line is one line, and JSON is valid and says the same.
func FuzzLine(f *testing.F) {
	f.Add("svc", "pool", "backend", "eth0", "a.example", int64(5), int64(-1), uint64(7), 3, uint8(1))
	f.Add("a b", "\n\r\x00", "\"\\\u2028", "e\" \nth", "\x1b[2J\u009b\u202e\U000e0001", int64(-1), int64(1<<62), uint64(1<<63), -3, uint8(13))
	f.Add("\xff\xfe", "#", "<NOSRV>", "", strings.Repeat("\u00e9", 200), int64(0), int64(999), uint64(0), 0, uint8(4))
	f.Fuzz(func(t *testing.T, service, pool, backend, zone, chosen string, d1, d2 int64, n uint64, m int, o uint8) {
		s := session(1)
		s.Service, s.Pool, s.Backend = service, pool, backend
		s.Flow.Client = netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(zone), uint16(n))
		s.Wait, s.Connect, s.FirstByte, s.Total = time.Duration(d1), time.Duration(d2), time.Duration(d2), time.Duration(d1)
		s.BytesIn, s.BytesOut, s.Retries, s.ActConn = n, n, m, int64(m)
		s.Outcome, s.By = l4.Outcome(int(o)%l4.NumOutcomes), l4.Side(o%4)
		s.TLS = &l4.TLS{ServerName: chosen, Subject: chosen, CommonName: chosen}

		line := appendPoise(nil, s)
		if !poiseLine.Match(line) || bytes.Count(line, []byte(" ")) != 8 || bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Errorf("poise: %q", line)
		}

		if line = appendTCPLog(nil, s); bytes.Count(line, []byte(" ")) != 8 || bytes.IndexByte(line, '\n') != len(line)-1 {
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
			TLS                            struct {
				Name    string `json:"server_name"`
				Subject string `json:"client_subject"`
			}
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		clean := func(s string) string { return string([]rune(s)) }
		if v.Service != clean(service) || v.Pool != clean(pool) || v.Backend != clean(backend) || v.BytesIn != n ||
			!strings.HasPrefix(v.Client, "fe80::1") || (v.Wait < 0) != (d1 < 0) {
			t.Errorf("%+v from %q", v, line)
		}
		whole := len(chosen) <= mostServerName
		if whole && v.TLS.Name != clean(chosen) || !whole && !strings.HasSuffix(v.TLS.Name, "…") {
			t.Errorf("server name %q of %q", v.TLS.Name, chosen)
		}
		for _, r := range string(line[:len(line)-1]) {
			if !unicode.IsPrint(r) {
				t.Errorf("%q in %q", r, line)
			}
		}
		// Three bytes of the log for each that is no UTF-8, six for one that is escaped.
		if most := 6 * (3*mostSubject + len(service) + len(pool) + len(backend) + len(zone) + 512); len(line) > most {
			t.Errorf("a line of %d bytes, at most %d", len(line), most)
		}
	})
}

// A text is cut between characters, and what has none is cut all the same.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text, want string
	}{
		{"", ``},
		{"abcdef", `abcdef`},
		{"abcdefg", `abcdef…`},
		{"abcde\u00e9", `abcde…`},
		{"abcd\u00e9f", "abcd\u00e9…"},
		{"abc\U0001f600f", "abc…"},
		{strings.Repeat("\x80", 9), strings.Repeat("\ufffd", 3) + "…"},
		{"a\u009b\u202e", `a\u009B\u202E`},
		{"\U000e0001z", `\uDB40\uDC01z`},
	} {
		if got := string(appendCut(nil, c.text, 6)); got != `"`+c.want+`"` {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
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
