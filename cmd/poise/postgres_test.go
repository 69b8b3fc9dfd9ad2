package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// postgres is a real PostgreSQL in processes of its own.
type postgres struct {
	addr string
	bin  string // folder of its programs
	as   *syscall.Credential
}

// startPostgres makes a database of its own and starts a server on it. The server
// refuses to run as root, and is then run as postgres or nobody.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian has it
	if len(found) == 0 {
		unavailable(t, "PostgreSQL is not installed")
	}
	pg := &postgres{addr: addr(t), bin: filepath.Dir(found[len(found)-1])}
	dir, err := os.MkdirTemp("", "poise-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		pg.as = unprivileged(t)
		if err := os.Chown(dir, int(pg.as.Uid), int(pg.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := pg.command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}

	host, port, _ := net.SplitHostPort(pg.addr)
	args := []string{"-D", data, "-p", port}
	for _, set := range []string{
		"listen_addresses=" + host, "unix_socket_directories=" + dir,
		"fsync=off", "full_page_writes=off", "autovacuum=off", "max_wal_size=1GB",
		"synchronize_seqscans=off", // a table is read in the order it was written in
	} {
		args = append(args, "-c", set)
	}
	cmd, out, done := pg.command("postgres", args...), &output{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // "immediate shutdown"
		<-done
		if t.Failed() {
			t.Logf("PostgreSQL:\n%s", out)
		}
	})
	eventually(t, "PostgreSQL to answer", func() bool {
		select {
		case <-done:
			t.Fatalf("postgres ended:\n%s", out)
		default:
		}
		return pg.psql(pg.addr, "-c", "SELECT 1").Run() == nil
	})
	return pg
}

func unprivileged(t *testing.T) *syscall.Credential {
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
	unavailable(t, "no user to run PostgreSQL as")
	return nil
}

// command is one of the server's programs, run as its user.
func (pg *postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(pg.bin, name), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: pg.as}
	return cmd
}

// psql is a client session at addr that prints bare values and ends at an error.
func (pg *postgres) psql(addr string, args ...string) *exec.Cmd {
	host, port, _ := net.SplitHostPort(addr)
	return pg.command("psql", append([]string{
		"-h", host, "-p", port, "-U", "postgres", "-d", "postgres", "-XqAt", "-v", "ON_ERROR_STOP=1",
	}, args...)...)
}

// query runs statements in a session of their own and returns what they print.
func (pg *postgres) query(t *testing.T, addr, sql string) string {
	t.Helper()
	out, err := pg.psql(addr, "-c", sql).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", sql, err, out)
	}
	return strings.TrimSpace(string(out))
}

// PostgreSQL behind a balancer that is reloaded all the time.
func TestPostgres(t *testing.T) {
	pg := startPostgres(t)
	listen := addr(t)
	yaml := webConfig(listen, "", "balance: least-conn, check: {type: tcp, interval: 500ms}", member("pg", pg.addr))
	p := start(t, yaml)

	t.Run("sessions", func(t *testing.T) {
		pg.query(t, listen, "CREATE TABLE t (n int)")
		for i := range 10 {
			pg.query(t, listen, fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
		}
		if got := pg.query(t, listen, "SELECT count(*), sum(n) FROM t"); got != "10|45" {
			t.Errorf("got %q", got)
		}
		// The server's own errors arrive as such.
		out, err := pg.psql(listen, "-c", "SELECT 1/0").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "division by zero") {
			t.Errorf("%v, %s", err, out)
		}
	})
	t.Run("long transaction", func(t *testing.T) { longTransaction(t, pg, p, listen, yaml) })
	t.Run("cancel", func(t *testing.T) { cancelQuery(t, pg, listen) })
	t.Run("100 MB each way", func(t *testing.T) { copyBothWays(t, pg, p, listen) })

	eventually(t, "the sessions to end", func() bool { return p.Status(t).Connections == 0 })
	for outcome, n := range p.Status(t).Services[0].Outcomes {
		// Who is refused by the server, or cancels, ends in an orderly way too.
		if outcome != "ok" && n > 0 {
			t.Errorf("%d sessions ended with %s", n, outcome)
		}
	}
}

// longTransaction goes on through reloads, pauses, and the removal of its backend.
func longTransaction(t *testing.T, pg *postgres, p *proc, listen, yaml string) {
	cmd := pg.psql(listen)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	step := func(sql, want string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, sql); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the answer to "+sql, func() bool { return strings.HasSuffix(out.String(), want) })
	}
	step("BEGIN; INSERT INTO t VALUES (1000); SELECT 'begun';", "begun\n")
	if got := pg.query(t, listen, "SELECT count(*) FROM t WHERE n = 1000"); got != "0" {
		t.Errorf("others see %s rows of it", got)
	}
	for i := range 10 {
		if i%2 == 0 {
			p.MustReload(t, strings.Replace(yaml, "name: pg", "name: renamed", 1))
		} else {
			p.MustReload(t, yaml)
		}
		step(fmt.Sprintf("INSERT INTO t VALUES (1000); SELECT pg_sleep(0.1), 'step %d';", i), fmt.Sprintf("step %d\n", i))
	}
	step("COMMIT; SELECT count(*) FROM t WHERE n = 1000;", "\n11\n")
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// cancelQuery interrupts psql, which then asks the server, on a connection of its
// own to the same address, to cancel the query.
func cancelQuery(t *testing.T, pg *postgres, listen string) {
	cmd := pg.psql(listen, "-c", "SELECT pg_sleep(300)")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the query to run", func() bool {
		return pg.query(t, pg.addr, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(300)%' AND pid <> pg_backend_pid()") == "1"
	})
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if err == nil || !strings.Contains(out.String(), "canceling statement due to user request") {
		t.Errorf("%v\n%s", err, out)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
}

// copyBothWays sends 100 MB by COPY, and gets them back.
func copyBothWays(t *testing.T, pg *postgres, p *proc, listen string) {
	const lines, width = 100_000, 1000
	pg.query(t, listen, "CREATE UNLOGGED TABLE bulk (line text)")
	stock := make([]byte, 1<<20)
	for i := range stock {
		stock[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[rand.N(36)]
	}
	sent := sha256.New()
	reader, writer := io.Pipe()
	go func() {
		w := io.MultiWriter(writer, sent)
		var block bytes.Buffer
		for i := range lines {
			from := (i * 7919) % (len(stock) - width)
			fmt.Fprintf(&block, "%08d", i)
			block.Write(stock[from : from+width-len("12345678\n")])
			block.WriteByte('\n')
			if block.Len() > 1<<19 || i == lines-1 {
				if _, err := w.Write(block.Bytes()); err != nil {
					break
				}
				block.Reset()
			}
		}
		writer.Close()
	}()
	in := pg.psql(listen, "-c", "COPY bulk FROM STDIN")
	in.Stdin = reader
	if out, err := in.CombinedOutput(); err != nil {
		reader.Close()
		t.Fatalf("%v\n%s", err, out)
	}

	received := sha256.New()
	n := &byteCount{w: received}
	back := pg.psql(listen, "-c", "COPY bulk TO STDOUT")
	var errs bytes.Buffer
	back.Stdout, back.Stderr = n, &errs
	if err := back.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.Bytes())
	}
	if n.n != lines*width || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
		t.Errorf("%d bytes came back of %d, checksums %x and %x", n.n, lines*width, sent.Sum(nil), received.Sum(nil))
	}
	if b := p.Backend(t, "web", "pg"); b.BytesIn < lines*width || b.BytesOut < lines*width {
		t.Errorf("not by way of the balancer: %+v", b)
	}
}

type byteCount struct {
	w io.Writer
	n int
}

func (c *byteCount) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}
