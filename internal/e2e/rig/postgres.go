package rig

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Postgres is a real PostgreSQL in processes of its own.
type Postgres struct {
	Addr string
	bin  string // folder of its programs
	as   *syscall.Credential
}

// StartPostgres makes a database of its own and starts a server on it. The server
// refuses to run as root, and is then run as postgres or nobody.
func StartPostgres(t *testing.T) *Postgres {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian has it
	if len(found) == 0 {
		Unavailable(t, "PostgreSQL is not installed")
	}
	pg := &Postgres{Addr: Addr(t), bin: filepath.Dir(found[len(found)-1])}
	dir, err := os.MkdirTemp("", "poise-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		pg.as = UnprivilegedUser(t)
		if err := os.Chown(dir, int(pg.as.Uid), int(pg.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := pg.command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}

	host, port, _ := net.SplitHostPort(pg.Addr)
	args := []string{"-D", data, "-p", port}
	for _, set := range []string{
		"listen_addresses=" + host, "unix_socket_directories=" + dir,
		"fsync=off", "full_page_writes=off", "autovacuum=off", "max_wal_size=1GB",
		"synchronize_seqscans=off", // a table is read in the order it was written in
	} {
		args = append(args, "-c", set)
	}
	StartServer(t, pg.command("postgres", args...), syscall.SIGQUIT, // "immediate shutdown"
		func() bool { return pg.Psql(pg.Addr, "-c", "SELECT 1").Run() == nil })
	return pg
}

// UnprivilegedUser is one that is not root, if there is one.
func UnprivilegedUser(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	Unavailable(t, "no user to run PostgreSQL as")
	return nil
}

// command is one of the server's programs, run as its user.
func (pg *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(pg.bin, name), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: pg.as}
	return cmd
}

// Psql is a client session at addr that prints bare values and ends at an error.
func (pg *Postgres) Psql(addr string, args ...string) *exec.Cmd {
	host, port, _ := net.SplitHostPort(addr)
	return pg.command("psql", append([]string{
		"-h", host, "-p", port, "-U", "postgres", "-d", "postgres", "-XqAt", "-v", "ON_ERROR_STOP=1",
	}, args...)...)
}

// Query runs statements in a session of their own and returns what they print.
func (pg *Postgres) Query(t *testing.T, addr, sql string) string {
	t.Helper()
	out, err := pg.Psql(addr, "-c", sql).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", sql, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Encrypt has the server offer TLS with a certificate.
func (pg *Postgres) Encrypt(t *testing.T, l Leaf) {
	t.Helper()
	dir, err := os.MkdirTemp("", "poise-postgres-tls-") // where the server's user may look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"ssl_cert_file": l.Cert, "ssl_key_file": l.Key} {
		path := filepath.Join(dir, name)
		ReplaceFile(t, path, from)
		if pg.as != nil {
			if err := os.Chown(path, int(pg.as.Uid), int(pg.as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		pg.Query(t, pg.Addr, fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, path))
	}
	pg.Query(t, pg.Addr, "ALTER SYSTEM SET ssl = on")
	pg.Query(t, pg.Addr, "SELECT pg_reload_conf()")
	Eventually(t, "PostgreSQL to speak TLS", func() bool {
		_, err := pg.Over(pg.Addr, "db.test", "sslmode=require", "SELECT 1")
		return err == nil
	})
}

// Over runs statements in a session of their own with a server of a name, which libpq
// asks for in TLS, at an address.
func (pg *Postgres) Over(addr, name, settings, sql string) (string, error) {
	host, port, _ := net.SplitHostPort(addr)
	// Run as the user of the tests, who can read the certificates.
	cmd := exec.Command(filepath.Join(pg.bin, "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql,
		"-d", fmt.Sprintf("host=%s hostaddr=%s port=%s user=postgres dbname=postgres connect_timeout=20 %s", name, host, port, settings))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
