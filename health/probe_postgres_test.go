package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const postgresPassword = "pass'word ü"

func postgresSpec(p Postgres) Spec { return Spec{Type: "postgres", Postgres: p} }

// asPostgres is a check that logs in as the tests do.
func asPostgres(change func(*Postgres)) Postgres {
	p := Postgres{User: "postgres", Password: postgresPassword}
	if change != nil {
		change(&p)
	}
	return p
}

// postgres is a PostgreSQL server of the tests.
type postgres struct {
	*server
	data, bin, cert string
}

func postgresProgram(t *testing.T, name string) string {
	return program(t, name, "/usr/lib/postgresql/*/bin")
}

// newPostgres makes a cluster with SCRAM passwords and TLS and runs it. It logs
// even what clients do that is not worth a warning.
func newPostgres(t *testing.T) *postgres {
	t.Helper()
	initdb := postgresProgram(t, "initdb")
	dir := serverDir(t)
	data, pwfile := filepath.Join(dir, "data"), filepath.Join(dir, "pw")
	writeOwned(t, pwfile, []byte(postgresPassword))
	run(t, dir, initdb, "-D", data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", pwfile, "-E", "UTF8", "--no-sync")
	appendTo(t, filepath.Join(data, "pg_hba.conf"), "host all all 127.0.0.7/32 scram-sha-256\n")
	cert, key := serverCertificate(t, dir)
	settings := fmt.Sprintf("fsync = off\nssl = on\nssl_cert_file = '%s'\nssl_key_file = '%s'\nlog_min_messages = debug1\n"+
		"log_connections = on\nwal_level = replica\nshared_buffers = 8MB\nmax_wal_senders = 4\nunix_socket_directories = '%s'\n"+
		"wal_retrieve_retry_interval = 100ms\n", cert, key, dir)
	appendTo(t, filepath.Join(data, "postgresql.conf"), settings)
	return runPostgres(t, &postgres{data: data, bin: postgresProgram(t, "postgres"), cert: cert})
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.WriteString(file, text); err != nil {
		t.Fatal(err)
	}
}

func runPostgres(t *testing.T, p *postgres) *postgres {
	t.Helper()
	address, port := freePort(t)
	p.server = start(t, syscall.SIGQUIT, address, filepath.Dir(p.data), p.bin, "-D", p.data, "-p", port, "-h", "127.0.0.1")
	awaitUp(t, p.server, postgresSpec(asPostgres(nil)))
	return p
}

// newReplica makes a streaming replica of p.
func (p *postgres) newReplica(t *testing.T) *postgres {
	t.Helper()
	basebackup := postgresProgram(t, "pg_basebackup")
	dir := serverDir(t)
	r := &postgres{data: filepath.Join(dir, "data"), bin: p.bin, cert: p.cert}
	host, port, _ := net.SplitHostPort(p.address)
	conninfo := fmt.Sprintf("host=%s port=%s user=postgres password='%s' sslmode=disable", host, port, strings.ReplaceAll(postgresPassword, "'", `\'`))
	run(t, dir, basebackup, "-d", conninfo, "-D", r.data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	return runPostgres(t, r)
}

// do runs one statement.
func (p *postgres) do(t *testing.T, sql string) {
	t.Helper()
	config, err := pgconn.ParseConfig("sslmode=disable user=postgres")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(p.address)
	config.Host, config.Port, config.Password, config.Fallbacks = at.Addr().String(), at.Port(), postgresPassword, nil
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresPrimaryAndReplica(t *testing.T) {
	primary := newPostgres(t)
	replica := primary.newReplica(t)
	primary.do(t, "CREATE USER poise PASSWORD 'hunter two'")
	primary.do(t, "CREATE DATABASE app")

	verified := postgresSpec(asPostgres(func(p *Postgres) { p.TLS = true }))
	verified.TLS = TLS{ServerName: "db.test", CA: primary.cert}
	otherName := verified
	otherName.TLS.ServerName = "other.test"
	unverified := verified
	unverified.TLS = TLS{NoVerify: true}
	sourced := postgresSpec(asPostgres(nil))
	sourced.Source = netip.MustParseAddr("127.0.0.7")
	spec := func(change func(*Postgres)) Spec { return postgresSpec(asPostgres(change)) }

	for name, c := range map[string]struct {
		server *postgres
		spec   Spec
		want   Reason // "" = up
	}{
		"primary as any":     {primary, spec(nil), ""},
		"primary as primary": {primary, spec(func(p *Postgres) { p.Role, p.MaxLag = Primary, time.Second }), ""},
		"primary as replica": {primary, spec(func(p *Postgres) { p.Role = Replica }), ROLE},
		"replica as replica": {replica, spec(func(p *Postgres) { p.Role = Replica }), ""},
		"replica as primary": {replica, spec(func(p *Postgres) { p.Role, p.MaxLag = Primary, time.Second }), ROLE},
		"database":           {primary, spec(func(p *Postgres) { p.User, p.Password, p.Database = "poise", "hunter two", "app" }), ""},
		"no such database":   {primary, spec(func(p *Postgres) { p.Database = "absent" }), L7STS},
		"wrong password":     {primary, spec(func(p *Postgres) { p.Password = "hunter three" }), L7STS},
		"no password":        {primary, spec(func(p *Postgres) { p.Password = "" }), L7STS},
		"TLS":                {primary, verified, ""},
		"TLS, unverified":    {primary, unverified, ""},
		"TLS, another name":  {primary, otherName, L6RSP},
		"source":             {primary, sourced, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := probeOnce(c.spec.Prober("tcp", c.server.address), longTimeout)
			if c.want == "" && err != nil {
				t.Fatal(err)
			}
			if c.want != "" {
				wantReason(t, err, c.want)
				if strings.Contains(err.Error(), "hunter three") {
					t.Errorf("the password is in %q", err)
				}
			}
		})
	}
	t.Run("socket", func(t *testing.T) {
		_, port, _ := net.SplitHostPort(primary.address)
		socket := filepath.Join(filepath.Dir(primary.data), ".s.PGSQL."+port)
		if err := probeOnce(verified.Prober("unix", socket), longTimeout); err != nil {
			t.Error(err)
		}
	})
	t.Run("lag", func(t *testing.T) { testPostgresLag(t, primary, replica) })
	t.Run("descriptors", func(t *testing.T) {
		many := verified
		many.Postgres.Role = Primary
		manyProbes(t, many.Prober("tcp", primary.address))
	})
	t.Run("log", func(t *testing.T) {
		log := primary.out.String()
		for _, bad := range []string{"unexpected EOF", "could not receive data", "could not send data", "reset by peer", "incomplete startup packet"} {
			if strings.Contains(log, bad) {
				t.Errorf("the server's log has %q", bad)
			}
		}
		if !strings.Contains(log, "host=127.0.0.7") {
			t.Error("no connection from the source address")
		}
	})
	t.Run("primary gone", func(t *testing.T) {
		patient := spec(func(p *Postgres) { p.Role, p.MaxLag = Replica, time.Hour }).Prober("tcp", replica.address)
		brief := spec(func(p *Postgres) { p.MaxLag = time.Second }).Prober("tcp", replica.address)
		probeUntil(t, brief, isUp)
		primary.stop(syscall.SIGQUIT)
		probeUntil(t, brief, has(LAG))
		if err := probeOnce(patient, longTimeout); err != nil {
			t.Error(err)
		}
		promoted := watchStandby(t, spec(func(p *Postgres) { p.Role = Primary }), replica.address)
		replica.do(t, "SELECT pg_promote()")
		promoted()
		probeUntil(t, spec(func(p *Postgres) { p.Role = Primary }).Prober("tcp", replica.address), isUp)
	})
}

func testPostgresLag(t *testing.T, primary, replica *postgres) {
	fast := postgresSpec(asPostgres(func(p *Postgres) { p.Role, p.MaxLag = Replica, 100*time.Millisecond })).Prober("tcp", replica.address)
	primary.do(t, "CREATE TABLE t (i int)")
	probeUntil(t, fast, isUp)
	time.Sleep(300 * time.Millisecond) // the primary is idle for more than the lag
	probeUntil(t, fast, isUp)
	replica.do(t, "SELECT pg_wal_replay_pause()")
	primary.do(t, "INSERT INTO t VALUES (1)")
	probeUntil(t, fast, has(LAG))
	replica.do(t, "SELECT pg_wal_replay_resume()")
	probeUntil(t, fast, isUp)
}

// scriptedPostgres logs everybody in and then answers each query with the next of
// the scripts.
func scriptedPostgres(queries ...func(*pgproto3.Backend, net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		b := pgproto3.NewBackend(conn, conn)
		if _, err := b.ReceiveStartupMessage(); err != nil {
			return
		}
		b.Send(&pgproto3.AuthenticationOk{})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
		for _, query := range queries {
			if _, err := b.Receive(); err != nil {
				return
			}
			query(b, conn)
		}
		silent(conn)
	}
}

// row answers a query with one row.
func row(values ...string) func(*pgproto3.Backend, net.Conn) {
	return func(b *pgproto3.Backend, _ net.Conn) {
		fields, row := make([]pgproto3.FieldDescription, len(values)), make([][]byte, len(values))
		for i, value := range values {
			fields[i].Name = []byte("c")
			if row[i] = []byte(value); value == "NULL" {
				row[i] = nil
			}
		}
		b.Send(&pgproto3.RowDescription{Fields: fields})
		b.Send(&pgproto3.DataRow{Values: row})
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		_ = b.Flush()
	}
}

// raw sends text as it is, in two pieces, and closes if ends.
func raw(text string, ends bool) func(net.Conn) {
	return func(conn net.Conn) {
		half := len(text) / 2
		_, _ = io.WriteString(conn, text[:half])
		time.Sleep(10 * time.Millisecond)
		_, _ = io.WriteString(conn, text[half:])
		if !ends {
			silent(conn)
		}
	}
}

func TestPostgresScripted(t *testing.T) {
	hangup := func(_ *pgproto3.Backend, conn net.Conn) { conn.Close() }
	hang := func(*pgproto3.Backend, net.Conn) {}
	lagging := func(p *Postgres) { p.Role, p.MaxLag = Replica, 10*time.Second }
	secure := func(p *Postgres) { p.TLS = true }
	refusal := func(conn net.Conn) {
		b := pgproto3.NewBackend(conn, conn)
		if _, err := b.ReceiveStartupMessage(); err != nil {
			return
		}
		b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P03", Message: "starting\nup"})
		_ = b.Flush()
	}
	for name, c := range map[string]struct {
		script func(net.Conn)
		change func(*Postgres)
		want   Reason
	}{
		"up":                     {scriptedPostgres(row("1")), nil, ""},
		"silent":                 {silent, nil, L7TOUT},
		"closes":                 {func(net.Conn) {}, nil, L7RSP},
		"another protocol":       {raw("HTTP/1.1 400 Bad Request\r\n\r\n", false), nil, L7RSP},
		"cut off":                {raw("R\x00\x00\x00\x08\x00", true), nil, L7RSP},
		"partial, then silent":   {raw("R\x00\x00\x00\x08\x00", false), nil, L7TOUT},
		"endless":                {raw(strings.Repeat("N\x00\x00\x10\x00"+strings.Repeat("\x00", 4092), 1000), false), nil, L7RSP},
		"starting up":            {refusal, nil, L7STS},
		"no answer to the query": {scriptedPostgres(hang), nil, L7TOUT},
		"closes at the query":    {scriptedPostgres(hangup), nil, L7RSP},
		"no columns":             {scriptedPostgres(row()), nil, L7RSP},
		"two columns":            {scriptedPostgres(row("t", "f")), lagging, L7RSP},
		"caught up":              {scriptedPostgres(row("t", "t", "1000")), lagging, ""},
		"in time":                {scriptedPostgres(row("t", "f", "9.5")), lagging, ""},
		"ahead of its primary":   {scriptedPostgres(row("t", "f", "-3")), lagging, ""},
		"late":                   {scriptedPostgres(row("t", "f", "10.5")), lagging, LAG},
		"later than there is":    {scriptedPostgres(row("t", "f", "1e300")), lagging, LAG},
		"nothing replayed":       {scriptedPostgres(row("t", "f", "NULL")), lagging, LAG},
		"TLS refused":            {raw("N", false), secure, L6RSP},
		"TLS not begun":          {raw("S", false), secure, L6TOUT},
		"TLS cut off":            {raw("S", true), secure, L6RSP},
		"TLS not spoken":         {raw("SHello", false), secure, L6RSP},
		"no answer about TLS":    {silent, secure, L7TOUT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", c.script)
			timeout := longTimeout
			if c.want == L7TOUT || c.want == L6TOUT {
				timeout = shortTimeout
			}
			begun := time.Now()
			err := s.probe(postgresSpec(asPostgres(c.change)), timeout)
			if took := time.Since(begun); took > longTimeout/2 {
				t.Errorf("took %s", took)
			}
			if c.want != "" {
				wantReason(t, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
			if n := s.accepted.Load(); n != 1 {
				t.Errorf("%d connections for one probe", n)
			}
		})
	}
}

// TestPostgresGrace: a replica that was seen to have caught up is as late as that
// is long ago, though its primary may have been idle for hours.
func TestPostgresGrace(t *testing.T) {
	p := &postgresProber{spec: Postgres{MaxLag: 10 * time.Second}}
	now := time.Now()
	columns := func(values ...string) (row [][]byte) {
		for _, v := range values {
			row = append(row, []byte(v))
		}
		return row
	}
	cutOff := columns("t", "f", "7200")
	wantReason(t, p.judge(cutOff, now), LAG)
	if err := p.judge(columns("t", "t", "7200"), now); err != nil {
		t.Error(err)
	}
	if err := p.judge(cutOff, now.Add(9*time.Second)); err != nil {
		t.Error(err)
	}
	wantReason(t, p.judge(cutOff, now.Add(11*time.Second)), LAG)
	if err := p.judge(columns("t", "f", "1"), now.Add(time.Minute)); err != nil {
		t.Error(err)
	}
}

func TestPostgresRefusedAndCancelled(t *testing.T) {
	address, _ := freePort(t)
	wantReason(t, probeOnce(postgresSpec(asPostgres(nil)).Prober("tcp", address), longTimeout), L4CON)
	cancelled(t, postgresSpec(asPostgres(nil)))
}

// The environment of the process has no say in how a probe logs in.
func TestPostgresTakesNothingFromTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PGUSER": "mallory", "PGPASSWORD": "x", "PGSSLMODE": "verify-full", "PGSSLROOTCERT": "/absent", "PGCONNECT_TIMEOUT": "soon",
		"PGTARGETSESSIONATTRS": "read-only", "PGOPTIONS": "-c x=y", "PGREQUIREAUTH": "none", "PGCHANNELBINDING": "require",
		"PGMAXPROTOCOLVERSION": "3.2", "PGSSLCERT": "/absent", "PGSSLKEY": "/absent",
	} {
		t.Setenv(name, value)
	}
	seen := make(chan map[string]string, 1)
	s := newScripted(t, "tcp", func(conn net.Conn) {
		b := pgproto3.NewBackend(conn, conn)
		if m, err := b.ReceiveStartupMessage(); err == nil {
			seen <- m.(*pgproto3.StartupMessage).Parameters
		}
	})
	wantReason(t, s.probe(postgresSpec(Postgres{User: "poise", Database: "db"}), longTimeout), L7RSP)
	if got, want := fmt.Sprint(<-seen), "map[application_name:poise database:db user:poise]"; got != want {
		t.Errorf("logged in with %s, want %s", got, want)
	}
	t.Setenv("PGSERVICE", "absent")
	if err := s.probe(postgresSpec(Postgres{User: "poise"}), longTimeout); err == nil || !strings.Contains(err.Error(), ErrLocal.Error()) {
		t.Errorf("%v, want ErrLocal", err)
	}
}
