package tcp

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// PostgreSQL behind a balancer that is reloaded all the time.
func TestPostgres(t *testing.T) {
	pg := rig.StartPostgres(t)
	listen := rig.Addr(t)
	yaml := rig.WebConfig(listen, "", "balance: least-conn, check: {type: tcp, interval: 500ms}", rig.Member("pg", pg.Addr))
	p := rig.Start(t, yaml)

	t.Run("sessions", func(t *testing.T) {
		pg.Query(t, listen, "CREATE TABLE t (n int)")
		for i := range 10 {
			pg.Query(t, listen, fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
		}
		if got := pg.Query(t, listen, "SELECT count(*), sum(n) FROM t"); got != "10|45" {
			t.Errorf("got %q", got)
		}
		// The server's own errors arrive as such.
		out, err := pg.Psql(listen, "-c", "SELECT 1/0").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "division by zero") {
			t.Errorf("%v, %s", err, out)
		}
	})
	t.Run("long transaction", func(t *testing.T) { longTransaction(t, pg, p, listen, yaml) })
	t.Run("cancel", func(t *testing.T) { cancelQuery(t, pg, listen) })
	t.Run("100 MB each way", func(t *testing.T) { copyBothWays(t, pg, p, listen) })

	rig.Eventually(t, "the sessions to end", func() bool { return p.Status(t).Connections == 0 })
	for outcome, n := range p.Status(t).Services[0].Outcomes {
		// A session that the server refuses, or that cancels, ends in an orderly way too.
		if outcome != "ok" && n > 0 {
			t.Errorf("%d sessions ended with %s", n, outcome)
		}
	}
}

// longTransaction goes on through reloads, pauses, and the removal of its backend.
func longTransaction(t *testing.T, pg *rig.Postgres, p *rig.Proc, listen, yaml string) {
	cmd := pg.Psql(listen)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &rig.Output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	step := func(sql, want string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, sql); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, "the answer to "+sql, func() bool { return strings.HasSuffix(out.String(), want) })
	}
	step("BEGIN; INSERT INTO t VALUES (1000); SELECT 'begun';", "begun\n")
	if got := pg.Query(t, listen, "SELECT count(*) FROM t WHERE n = 1000"); got != "0" {
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
func cancelQuery(t *testing.T, pg *rig.Postgres, listen string) {
	cmd := pg.Psql(listen, "-c", "SELECT pg_sleep(300)")
	out := &rig.Output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the query to run", func() bool {
		return pg.Query(t, pg.Addr, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(300)%' AND pid <> pg_backend_pid()") == "1"
	})
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if err == nil || !strings.Contains(out.String(), "canceling statement due to user request") {
		t.Errorf("%v\n%s", err, out)
	}
	if took := time.Since(began); took > rig.Patience {
		t.Errorf("it took %v", took)
	}
}

// copyBothWays sends 100 MB by COPY, and gets them back.
func copyBothWays(t *testing.T, pg *rig.Postgres, p *rig.Proc, listen string) {
	const lines, width = 100_000, 1000
	pg.Query(t, listen, "CREATE UNLOGGED TABLE bulk (line text)")
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
	in := pg.Psql(listen, "-c", "COPY bulk FROM STDIN")
	in.Stdin = reader
	if out, err := in.CombinedOutput(); err != nil {
		reader.Close()
		t.Fatalf("%v\n%s", err, out)
	}

	received := sha256.New()
	n := &byteCount{w: received}
	back := pg.Psql(listen, "-c", "COPY bulk TO STDOUT")
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
