package tls

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// who asks a server for its port, and whether it has the session over TLS.
const who = "SELECT inet_server_port(), ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"

// PostgreSQL in every way its TLS can be handled. Its clients ask for TLS in the clear,
// and the server does not speak first.
func TestServicePostgres(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	one, two := rig.StartPostgres(t), rig.StartPostgres(t)
	one.Encrypt(t, ca.Issue(t, "one.test"))
	two.Encrypt(t, ca.Issue(t, "two.test"))
	own := ca.Issue(t, "lb.test")
	routed, ended, both := rig.Addr(t), rig.Addr(t), rig.Addr(t)
	p := rig.Start(t, fmt.Sprintf(`
log: {access_format: json}
defaults: {services: {starttls: postgres}, pools: {check: {type: none}}}
services:
  routed: {listen: [%q], sni: {One.test: one, "*.two.test": two, two.test: two}}
  ended: {listen: [%q], pool: one, %s}
  both: {listen: [%q], pool: encrypted, %s}
pools:
  one: {backends: [%s]}
  two: {backends: [%s]}
  encrypted: {backends: [%s], tls: {server_name: two.test, ca: %s, starttls: postgres}}
`, routed, ended, own.ServiceTLS(), both, own.ServiceTLS(), rig.Member("pg", one.Addr), rig.Member("pg", two.Addr), rig.Member("pg", two.Addr), ca.File))
	_, portOne, _ := net.SplitHostPort(one.Addr)
	_, portTwo, _ := net.SplitHostPort(two.Addr)
	verify := "sslmode=verify-full sslrootcert=" + ca.File

	for _, c := range []struct{ listen, name, settings, want string }{
		{routed, "one.test", verify, portOne + "|t"},
		{routed, "ONE.test", "sslmode=require", portOne + "|t"},
		{routed, "two.test", verify, portTwo + "|t"},
		{routed, "a.two.test", "sslmode=require", portTwo + "|t"},
		{ended, "lb.test", verify, portOne + "|f"},
		{both, "lb.test", verify, portTwo + "|t"},
		{both, "lb.test", "sslmode=require ssl_min_protocol_version=TLSv1.2 ssl_max_protocol_version=TLSv1.2", portTwo + "|t"},
	} {
		if got, err := one.Over(c.listen, c.name, c.settings, who); got != c.want || err != nil {
			t.Errorf("%s with %s: got %q, want %q, %v", c.name, c.settings, got, c.want, err)
		}
	}
	// A client that goes on in the clear, or asks for an unknown name, gets no server.
	for _, c := range []struct{ listen, name, settings string }{
		{routed, "one.test", "sslmode=disable"},
		{ended, "lb.test", "sslmode=disable"},
		{routed, "three.test", "sslmode=require"},
		{routed, "one.test", "sslmode=require sslsni=0"},
	} {
		if got, err := one.Over(c.listen, c.name, c.settings, who); err == nil {
			t.Errorf("%s with %s: got %q", c.name, c.settings, got)
		}
	}
	// How they end is up to psql, which does not read what TLS says last.
	p.WantLogged(t, `"service":"ended"`, `"version":"TLSv1.3"`, `"server_name":"lb.test"`)
	p.WantLogged(t, `"service":"both"`, `"version":"TLSv1.2"`)
	p.WantLogged(t, `"service":"routed"`, `"pool":"two"`, `"tls":null`)

	// Much data each way, over TLS on both sides.
	const rows = 200_000
	sql := fmt.Sprintf("CREATE TABLE t AS SELECT g FROM generate_series(1, %d) g; COPY t TO STDOUT", rows)
	got, err := one.Over(both, "lb.test", verify, sql)
	if n := strings.Count(got, "\n"); n != rows-1 || err != nil || !strings.HasSuffix(got, fmt.Sprint(rows)) {
		t.Errorf("%d rows, %v", n, err)
	}
	if n := p.Metrics(t).Sum("poise_sessions_total", `outcome="bad_tls_hello"`); n != 3 {
		t.Errorf("%v were no TLS, or for no pool", n)
	}
}
