package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// nowhere is a client without files of the host.
func nowhere() *client { return newClient("/nonexistent/resolv.conf", "/nonexistent/hosts") }

func lookup(t *testing.T, kind Kind, name string, servers ...*server) answer {
	t.Helper()
	target := Target{Key: Key{Kind: kind, Name: name}}
	for _, s := range servers {
		target.Servers = append(target.Servers, s.addr)
	}
	return nowhere().lookup(t.Context(), target)
}

// text shows an answer: members in order, TTL, and what went wrong.
func (a answer) text() string {
	var members []Member
	var errs []string
	for _, p := range a.parts {
		members = append(members, p.members...)
		if p.err != nil {
			errs = append(errs, oneLine(p.err))
		}
	}
	var out []string
	for _, m := range distinct(members) {
		s := m.Addr.String()
		if m.Port != 0 {
			s += fmt.Sprintf(":%d/%d/%d", m.Port, m.Priority, m.Weight)
		}
		out = append(out, s)
	}
	out = append(out, a.ttl.String())
	if a.empty != "" && len(members) == 0 {
		out = append(out, a.empty)
	}
	slices.Sort(errs)
	return strings.Join(append(out, errs...), " | ")
}

// TestLookup is what answers of one server lead to.
func TestLookup(t *testing.T) {
	const name = "db.internal"
	with := func(s script, change func(q, m *dns.Msg)) script {
		return func(network string, q *dns.Msg) *dns.Msg {
			m := s(network, q)
			change(q, m)
			return m
		}
	}
	soa := func(ttl string) func(_, m *dns.Msg) {
		return func(_, m *dns.Msg) {
			rr, err := dns.NewRR("internal. " + ttl + " SOA ns. root. 1 2 3 4 77")
			if err != nil {
				panic(err)
			}
			m.Ns = append(m.Ns, rr)
		}
	}
	for _, tt := range []struct {
		what   string
		kind   Kind
		script script
		want   string
	}{
		{"both families", Host, says("db.internal. 30 A 10.0.0.2", "db.internal. 20 A 10.0.0.1", "db.internal. 40 AAAA 2001:db8::1"), "10.0.0.1 | 10.0.0.2 | 2001:db8::1 | 20s"},
		{"one family", Host, says("db.internal. 30 AAAA 2001:db8::1"), "2001:db8::1 | 30s"},
		{"alias", Host, says("db.internal. 5 CNAME a.internal.", "a.internal. 9 CNAME b.internal.", "b.internal. 30 A 10.0.0.1"), "10.0.0.1 | 5s"},
		{"alias of nothing", Host, says("db.internal. 5 CNAME a.internal."), "0s | A db.internal: no records from SERVER"},
		{"alias of itself", Host, says("db.internal. 5 CNAME a.internal.", "a.internal. 5 CNAME db.internal."), "0s | A db.internal: no records from SERVER"},
		{"unrelated record", Host, with(says("db.internal. 30 A 10.0.0.1"), func(_, m *dns.Msg) {
			if len(m.Answer) > 0 {
				rr, _ := dns.NewRR("www.internal. 30 A 10.0.0.9")
				m.Answer = append(m.Answer, rr)
			}
		}), "10.0.0.1 | 30s"},
		{"another case", Host, with(says("db.internal. 30 A 10.0.0.1"), func(_, m *dns.Msg) {
			m.Question[0].Name = "DB.Internal."
			for _, rr := range m.Answer {
				rr.Header().Name = "dB.internal."
			}
		}), "10.0.0.1 | 30s"},
		{"no such name", Host, with(says("other. 1 A 10.0.0.1"), soa("50")), "50s | A db.internal: NXDOMAIN from SERVER"},
		{"no address", Host, with(empty, soa("90")), "1m17s | A db.internal: no records from SERVER"},
		{"nothing at all", Host, empty, "0s | A db.internal: no records from SERVER"},
		{"TTL beyond 31 bits", Host, says("db.internal. 4294967295 A 10.0.0.1"), "10.0.0.1 | 0s"},
		{"addresses of nobody", Host, says("db.internal. 5 A 0.0.0.0", "db.internal. 5 AAAA ff02::1", "db.internal. 5 A 255.255.255.255"), "0s | A db.internal: no usable address | AAAA db.internal: no usable address"},
		{"one of nobody", Host, says("db.internal. 5 A 0.0.0.0", "db.internal. 7 A 10.0.0.1", "db.internal. 9 AAAA ::ffff:10.0.0.2"), "10.0.0.1 | 10.0.0.2 | 5s"},
		{"SERVFAIL", Host, fails(dns.RcodeServerFailure), "0s | A db.internal: SERVFAIL from SERVER | AAAA db.internal: SERVFAIL from SERVER"},
		{"REFUSED", Host, fails(dns.RcodeRefused), "0s | A db.internal: REFUSED from SERVER | AAAA db.internal: REFUSED from SERVER"},
		{"one family fails", Host, func(n string, q *dns.Msg) *dns.Msg {
			if q.Question[0].Qtype == dns.TypeAAAA {
				return fails(dns.RcodeServerFailure)(n, q)
			}
			return says("db.internal. 30 A 10.0.0.1")(n, q)
		}, "10.0.0.1 | 30s | AAAA db.internal: SERVFAIL from SERVER"},
		{"no such name, one family fails", Host, func(n string, q *dns.Msg) *dns.Msg {
			if q.Question[0].Qtype == dns.TypeA {
				return fails(dns.RcodeServerFailure)(n, q)
			}
			return says("other. 1 A 10.0.0.1")(n, q)
		}, "0s | AAAA db.internal: NXDOMAIN from SERVER | A db.internal: SERVFAIL from SERVER"},
		{"a referral", Host, with(empty, func(_, m *dns.Msg) {
			rr, _ := dns.NewRR("internal. 30 NS ns.internal.")
			m.Ns = append(m.Ns, rr)
		}), "0s | A db.internal: a referral from SERVER | AAAA db.internal: a referral from SERVER"},
		{
			"SRV", SRV, says("db.internal. 60 SRV 1 20 5432 a.internal.", "db.internal. 60 SRV 0 10 5433 b.internal.", "db.internal. 60 SRV 2 0 5434 b.internal.",
				"a.internal. 30 A 10.0.0.1", "b.internal. 40 A 10.0.0.2", "b.internal. 40 AAAA 2001:db8::2"),
			"10.0.0.2:5433/0/10 | 2001:db8::2:5433/0/10 | 10.0.0.1:5432/1/20 | 10.0.0.2:5434/2/0 | 2001:db8::2:5434/2/0 | 30s",
		},
		{"SRV twice", SRV, says("db.internal. 60 SRV 1 20 5432 a.internal.", "db.internal. 60 SRV 0 7 5432 a.internal.", "a.internal. 70 A 10.0.0.1"), "10.0.0.1:5432/0/7 | 1m0s"},
		{"SRV of nothing", SRV, says("db.internal. 60 SRV 0 0 0 ."), "1m0s | SRV db.internal: the service is not available"},
		{"SRV without addresses", SRV, says("db.internal. 60 SRV 0 0 1 a.internal."), "0s | SRV db.internal: no target has an address"},
		{"no SRV", SRV, with(empty, soa("10")), "10s | SRV db.internal: no records from SERVER"},
		{"SRV, one target fails", SRV, func(n string, q *dns.Msg) *dns.Msg {
			if q.Question[0].Name == "b.internal." {
				return fails(dns.RcodeRefused)(n, q)
			}
			return says("db.internal. 60 SRV 1 1 1 a.internal.", "db.internal. 60 SRV 1 1 1 b.internal.", "a.internal. 30 A 10.0.0.1")(n, q)
		}, "10.0.0.1:1/1/1 | 0s | A b.internal: REFUSED from SERVER | AAAA b.internal: REFUSED from SERVER"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := newServer(t, "127.0.0.1:0", tt.script)
			got := strings.ReplaceAll(lookup(t, tt.kind, name, s).text(), s.addr.String(), "SERVER")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, q := range s.questions() {
				if !q.edns || q.network != "udp" {
					t.Errorf("asked %+v", q)
				}
			}
		})
	}
}

// TestSearchOfNothing: a name is asked for as it is written, whatever the host's
// search list; and every query has a socket of its own.
func TestSearchOfNothing(t *testing.T) {
	s := newServer(t, "127.0.0.1:0", says("other. 1 A 10.0.0.1"))
	for range 10 {
		lookup(t, Host, "db", s)
	}
	ports := map[uint16]bool{}
	for _, q := range s.questions() {
		if q.name != "db." {
			t.Errorf("asked for %s", q.name)
		}
		ports[q.port] = true
	}
	if len(ports) < 10 {
		t.Errorf("20 queries from %d ports", len(ports))
	}
}

// TestTruncated: what does not fit into a datagram comes over TCP.
func TestTruncated(t *testing.T) {
	var records []string
	for i := range 400 {
		records = append(records, fmt.Sprintf("db.internal. 60 A 10.0.%d.%d", i/200, i%200+1))
	}
	full := says(records...)
	s := newServer(t, "127.0.0.1:0", func(network string, q *dns.Msg) *dns.Msg {
		m := full(network, q)
		if network == "udp" {
			m.Truncate(int(q.IsEdns0().UDPSize()))
		}
		return m
	})
	a := lookup(t, Host, "db.internal", s)
	if len(a.parts[0].members) != 400 {
		t.Errorf("got %s", a.text())
	}
	var tcp int
	for _, q := range s.questions() {
		if q.network == "tcp" {
			tcp++
		}
	}
	if tcp != 1 { // the answer about AAAA is short
		t.Errorf("%d questions over TCP, want 1", tcp)
	}

	// A server that is silent over TCP knows nothing.
	s.does(func(network string, q *dns.Msg) *dns.Msg {
		if network == "tcp" {
			return nil
		}
		m := full(network, q)
		m.Truncate(512)
		return m
	})
	if a := lookup(t, Host, "db.internal", s); a.parts[0].err == nil {
		t.Errorf("half an answer counts: %s", a.text())
	}
}

func TestTooMany(t *testing.T) {
	var records []string
	for i := range maxMembers + 1 {
		records = append(records, fmt.Sprintf("db.internal. 60 A 10.1.%d.%d", i/200, i%200+1))
	}
	s := newServer(t, "127.0.0.1:0", func(network string, q *dns.Msg) *dns.Msg {
		m := says(records...)(network, q)
		if network == "udp" {
			m.Truncate(dns.MinMsgSize)
		}
		return m
	})
	if got, want := lookup(t, Host, "db.internal", s).text(), "0s | db.internal leads to 1001 addresses; at most 1000 are used"; got != want {
		t.Errorf("got %s", got)
	}
}

// TestWithoutEDNS: a server that chokes on EDNS is asked without.
func TestWithoutEDNS(t *testing.T) {
	for _, rcode := range []int{dns.RcodeFormatError, dns.RcodeNotImplemented} {
		s := newServer(t, "127.0.0.1:0", func(n string, q *dns.Msg) *dns.Msg {
			if q.IsEdns0() != nil {
				m := fails(rcode)(n, q)
				if rcode == dns.RcodeFormatError {
					m.Question = nil // it could not read it
				}
				return m
			}
			return says("db.internal. 30 A 10.0.0.1")(n, q)
		})
		if got := lookup(t, Host, "db.internal", s).text(); got != "10.0.0.1 | 30s" {
			t.Errorf("got %s", got)
		}
	}
}

// TestForged: answers to other questions are passed over, the right one counts
// although it comes after them.
func TestForged(t *testing.T) {
	right := says("db.internal. 30 A 10.0.0.1", "db.internal. 30 AAAA 2001:db8::1")
	s := newServer(t, "127.0.0.1:0", nil)
	raw := func(w dns.ResponseWriter, q *dns.Msg) {
		forge := func(change func(*dns.Msg)) {
			m := says("db.internal. 30 A 10.6.6.6", "db.internal. 30 AAAA 2001:db8::666")("udp", q)
			change(m)
			_ = w.WriteMsg(m)
		}
		forge(func(m *dns.Msg) { m.Id++ })
		forge(func(m *dns.Msg) { m.Question[0].Name = "evil." })
		forge(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT })
		forge(func(m *dns.Msg) { m.Question = nil })
		forge(func(m *dns.Msg) { m.Response = false })
		forge(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify })
		_, _ = w.Write([]byte("garbage"))
		_, _ = w.Write(append([]byte{byte(q.Id >> 8), byte(q.Id)}, strings.Repeat("\xff", 100)...))
		_, _ = w.Write(nil)
		_ = w.WriteMsg(right("udp", q))
	}
	s.mu.Lock()
	s.raw = raw
	s.mu.Unlock()
	if got := lookup(t, Host, "db.internal", s).text(); got != "10.0.0.1 | 2001:db8::1 | 30s" {
		t.Errorf("got %s", got)
	}
}

// TestServersInTurn: the next server is asked if one has nothing to say, and not
// if it says that there is no such name.
func TestServersInTurn(t *testing.T) {
	good := newServer(t, "127.0.0.1:0", says("db.internal. 30 A 10.0.0.1"))
	gone := newServer(t, "127.0.0.1:0", silent)
	gone.stop()
	for what, first := range map[string]*server{
		"REFUSED": newServer(t, "127.0.0.1:0", fails(dns.RcodeRefused)),
		"silent":  newServer(t, "127.0.0.1:0", silent),
		"gone":    gone,
	} {
		if got := lookup(t, Host, "db.internal", first, good).text(); got != "10.0.0.1 | 30s" {
			t.Errorf("%s: got %s", what, got)
		}
	}
	asked := len(good.questions())
	no := newServer(t, "127.0.0.1:0", says("other. 1 A 10.0.0.1"))
	if a := lookup(t, Host, "db.internal", no, good); a.empty == "" || len(good.questions()) != asked {
		t.Errorf("got %s, and the second server was asked %d times", a.text(), len(good.questions())-asked)
	}
	all := lookup(t, Host, "db.internal", gone, newServer(t, "127.0.0.1:0", silent)).text()
	for _, want := range []string{"connection refused", "no answer within 1s"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q does not say %q", all, want)
		}
	}
}

// TestCancelled: a lookup ends when it is told to.
func TestCancelled(t *testing.T) {
	s := newServer(t, "127.0.0.1:0", silent)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	target := Target{Key: Key{Name: "db.internal"}, Servers: slices.Repeat([]netip.AddrPort{s.addr}, 100)}
	start := time.Now()
	nowhere().lookup(ctx, target)
	if took := time.Since(start); took > 20*time.Second { // 100 s if it did not
		t.Errorf("took %s", took)
	}
}

// TestSystem: without servers of its own a name is looked up as the host would,
// and the host's files are read again when they change.
func TestSystem(t *testing.T) {
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	c := newClient(conf, hosts)
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	servers := func() string {
		t.Helper()
		list, err := c.system.servers()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(list)
	}
	if got := servers(); got != "[127.0.0.1:53]" {
		t.Errorf("without resolv.conf: %s", got)
	}
	put(conf, "# comment\nsearch example.org\nnameserver 10.0.0.53\nnameserver ::1\nnameserver what\noptions ndots:5\n")
	if got := servers(); got != "[10.0.0.53:53 [::1]:53]" {
		t.Errorf("got %s", got)
	}
	put(conf, "nameserver 10.0.0.54\n")
	if got := servers(); got != "[10.0.0.54:53]" {
		t.Errorf("after a change: %s", got)
	}
	if err := os.Chtimes(conf, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	put(conf, "")
	if got := servers(); got != "[127.0.0.1:53]" {
		t.Errorf("with an empty resolv.conf: %s", got)
	}

	put(hosts, "127.0.0.1 localhost\n::1 localhost\n10.0.0.7 db.internal DB2.internal # both\n0.0.0.0 blocked\nx y\n10.0.0.8\n")
	look := func(name string) string {
		return c.lookup(t.Context(), Target{Key: Key{Name: name}}).text()
	}
	for name, want := range map[string]string{
		"localhost":    "127.0.0.1 | ::1 | 5s",
		"db2.internal": "10.0.0.7 | 5s",
	} {
		if got := look(name); got != want {
			t.Errorf("%s: got %s", name, got)
		}
	}
	put(hosts, "10.0.0.8 db.internal")
	if got := look("db.internal"); got != "10.0.0.8 | 5s" {
		t.Errorf("after a change: %s", got)
	}
	if got := c.system.hosts("blocked"); got != nil {
		t.Errorf("blocked is %v", got)
	}

	// With servers of its own, the hosts file does not count.
	s := newServer(t, "127.0.0.1:0", says("db.internal. 30 A 10.0.0.1"))
	if got := c.lookup(t.Context(), Target{Key: Key{Name: "db.internal"}, Servers: []netip.AddrPort{s.addr}}).text(); got != "10.0.0.1 | 30s" {
		t.Errorf("got %s", got)
	}
}
