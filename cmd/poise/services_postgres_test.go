package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// encrypt has the server offer TLS with a certificate.
func (pg *postgres) encrypt(t *testing.T, l leaf) {
	t.Helper()
	dir, err := os.MkdirTemp("", "poise-postgres-tls-") // where the server's user may look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"ssl_cert_file": l.cert, "ssl_key_file": l.key} {
		path := filepath.Join(dir, name)
		replaceFile(t, path, from)
		if pg.as != nil {
			if err := os.Chown(path, int(pg.as.Uid), int(pg.as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		pg.query(t, pg.addr, fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, path))
	}
	pg.query(t, pg.addr, "ALTER SYSTEM SET ssl = on")
	pg.query(t, pg.addr, "SELECT pg_reload_conf()")
	eventually(t, "PostgreSQL to speak TLS", func() bool {
		_, err := pg.over(pg.addr, "db.test", "sslmode=require", "SELECT 1")
		return err == nil
	})
}

// over runs statements in a session of their own with a server of a name, which libpq
// asks for in TLS, at an address.
func (pg *postgres) over(addr, name, settings, sql string) (string, error) {
	host, port, _ := net.SplitHostPort(addr)
	// As whoever runs the tests: the certificates are theirs.
	cmd := exec.Command(filepath.Join(pg.bin, "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql,
		"-d", fmt.Sprintf("host=%s hostaddr=%s port=%s user=postgres dbname=postgres connect_timeout=20 %s", name, host, port, settings))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// who asks a server for its port, and whether it has the session over TLS.
const who = "SELECT inet_server_port(), ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"

// PostgreSQL in every way its TLS can be handled. Its clients ask for TLS in the clear,
// and it greets nobody.
func TestServicePostgres(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one, two := startPostgres(t), startPostgres(t)
	one.encrypt(t, ca.issue(t, "one.test"))
	two.encrypt(t, ca.issue(t, "two.test"))
	own := ca.issue(t, "lb.test")
	routed, ended, both := addr(t), addr(t), addr(t)
	p := start(t, fmt.Sprintf(`
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
`, routed, ended, own.ends(), both, own.ends(), member("pg", one.addr), member("pg", two.addr), member("pg", two.addr), ca.file))
	_, portOne, _ := net.SplitHostPort(one.addr)
	_, portTwo, _ := net.SplitHostPort(two.addr)
	verify := "sslmode=verify-full sslrootcert=" + ca.file

	for _, c := range []struct{ listen, name, settings, want string }{
		{routed, "one.test", verify, portOne + "|t"},
		{routed, "ONE.test", "sslmode=require", portOne + "|t"},
		{routed, "two.test", verify, portTwo + "|t"},
		{routed, "a.two.test", "sslmode=require", portTwo + "|t"},
		{ended, "lb.test", verify, portOne + "|f"},
		{both, "lb.test", verify, portTwo + "|t"},
		{both, "lb.test", "sslmode=require ssl_min_protocol_version=TLSv1.2 ssl_max_protocol_version=TLSv1.2", portTwo + "|t"},
	} {
		if got, err := one.over(c.listen, c.name, c.settings, who); got != c.want || err != nil {
			t.Errorf("%s with %s: got %q, want %q, %v", c.name, c.settings, got, c.want, err)
		}
	}
	// Who goes on in the clear, or asks for somebody else, gets nobody.
	for _, c := range []struct{ listen, name, settings string }{
		{routed, "one.test", "sslmode=disable"},
		{ended, "lb.test", "sslmode=disable"},
		{routed, "three.test", "sslmode=require"},
		{routed, "one.test", "sslmode=require sslsni=0"},
	} {
		if got, err := one.over(c.listen, c.name, c.settings, who); err == nil {
			t.Errorf("%s with %s: got %q", c.name, c.settings, got)
		}
	}
	// How they end is up to psql, which does not read what TLS says last.
	p.logged(t, `"service":"ended"`, `"version":"TLSv1.3"`, `"server_name":"lb.test"`)
	p.logged(t, `"service":"both"`, `"version":"TLSv1.2"`)
	p.logged(t, `"service":"routed"`, `"pool":"two"`, `"tls":null`)

	// Much data each way, over TLS on both sides.
	const rows = 200_000
	sql := fmt.Sprintf("CREATE TABLE t AS SELECT g FROM generate_series(1, %d) g; COPY t TO STDOUT", rows)
	got, err := one.over(both, "lb.test", verify, sql)
	if n := strings.Count(got, "\n"); n != rows-1 || err != nil || !strings.HasSuffix(got, fmt.Sprint(rows)) {
		t.Errorf("%d rows, %v", n, err)
	}
	if n := p.Metrics(t).Sum("poise_sessions_total", `outcome="bad_tls_hello"`); n != 3 {
		t.Errorf("%v were no TLS, or for nobody", n)
	}
}
