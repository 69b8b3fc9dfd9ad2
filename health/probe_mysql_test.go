package health

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

const mysqlPassword = "pass'word ü"

func mysqlSpec(m MySQL) Spec { return Spec{Type: "mysql", MySQL: m} }

// asMySQL is a check that logs in as the tests do.
func asMySQL(change func(*MySQL)) MySQL {
	m := MySQL{User: "poise", Password: mysqlPassword}
	if change != nil {
		change(&m)
	}
	return m
}

// mariadb is a MariaDB server of the tests.
type mariadb struct {
	*server
	socket, cert string
}

// newMariaDB makes a database and runs a server on it, with TLS on offer.
func newMariaDB(t *testing.T, args ...string) *mariadb {
	t.Helper()
	install, daemon := program(t, "mariadb-install-db"), program(t, "mariadbd", "/usr/sbin")
	dir := serverDir(t)
	data := filepath.Join(dir, "data")
	run(t, dir, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	address, port := freePort(t)
	m := &mariadb{socket: filepath.Join(dir, "s")}
	var key string
	m.cert, key = serverCertificate(t, dir)
	args = append([]string{
		"--no-defaults", "--datadir=" + data, "--socket=" + m.socket, "--port=" + port, "--bind-address=127.0.0.1",
		"--pid-file=" + filepath.Join(dir, "pid"), "--ssl-cert=" + m.cert, "--ssl-key=" + key, "--log-bin=bin", "--skip-name-resolve",
		"--innodb-buffer-pool-size=8M", "--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--log-warnings=9", "--slave-net-timeout=5",
	}, args...)
	m.server = start(t, syscall.SIGKILL, address, dir, daemon, args...)
	awaitUp(t, m.server, mysqlSpec(MySQL{User: "root"}))
	m.do(t, "SET sql_log_bin = 0")
	return m
}

// login is a session of the administrator.
func (m *mariadb) login(t *testing.T) driver.Conn {
	t.Helper()
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "unix", m.socket
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	session, err := connector.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// hold runs a statement in a session that lasts until release is called.
func (m *mariadb) hold(t *testing.T, statement string) (release func()) {
	t.Helper()
	session := m.login(t)
	release = sync.OnceFunc(func() { session.Close() })
	t.Cleanup(release)
	if _, err := query(session, statement); err != nil {
		t.Fatal(err)
	}
	return release
}

// query runs statements of the administrator and returns the rows of the last.
func (m *mariadb) query(t *testing.T, statements ...string) (rows []map[string]string) {
	t.Helper()
	session := m.login(t)
	defer session.Close()
	var err error
	for _, statement := range statements {
		if rows, err = query(session, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return rows
}

func (m *mariadb) do(t *testing.T, statements ...string) {
	t.Helper()
	m.query(t, statements...)
}

// aborted is how many clients went without a word.
func (m *mariadb) aborted(t *testing.T) (n int) {
	t.Helper()
	for _, row := range m.query(t, "SHOW GLOBAL STATUS LIKE 'Aborted_c%'") {
		count, err := strconv.Atoi(row["Value"])
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

func TestMariaDBPrimaryAndReplica(t *testing.T) {
	primary := newMariaDB(t, "--server-id=1")
	replica := newMariaDB(t, "--server-id=2", "--read-only")
	quoted := strings.ReplaceAll(mysqlPassword, "'", "''")
	for _, m := range []*mariadb{primary, replica} {
		m.do(t, "SET sql_log_bin = 0",
			"CREATE USER poise@'%' IDENTIFIED BY '"+quoted+"'",
			"GRANT REPLICA MONITOR ON *.* TO poise@'%'",
			"CREATE USER plain@'%' IDENTIFIED BY 'hunter two'",
			"CREATE USER copy@'%' IDENTIFIED BY 'copy'",
			"GRANT REPLICATION SLAVE ON *.* TO copy@'%'",
			"CREATE DATABASE app", "GRANT SELECT ON app.* TO plain@'%'")
	}
	spec := func(change func(*MySQL)) Spec { return mysqlSpec(asMySQL(change)) }
	replicates := spec(func(m *MySQL) { m.Role, m.MaxLag = Replica, 5*time.Second }).Prober("tcp", replica.address)
	wantReason(t, probeOnce(replicates, longTimeout), LAG) // it does not replicate yet
	_, port, _ := net.SplitHostPort(primary.address)
	replica.do(t, "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT="+port+", MASTER_USER='copy', MASTER_PASSWORD='copy', MASTER_USE_GTID=slave_pos",
		"START SLAVE")
	probeUntil(t, replicates, isUp)

	verified := spec(func(m *MySQL) { m.TLS, m.Role = true, Primary })
	verified.TLS = TLS{ServerName: "db.test", CA: primary.cert}
	otherName := verified
	otherName.TLS.ServerName = "other.test"
	unverified := verified
	unverified.TLS = TLS{NoVerify: true}
	quiet := primary.aborted(t)

	for name, c := range map[string]struct {
		server *mariadb
		spec   Spec
		want   Reason // "" = up
	}{
		"primary as any":     {primary, spec(nil), ""},
		"primary as primary": {primary, spec(func(m *MySQL) { m.Role, m.MaxLag = Primary, time.Second }), ""},
		"primary as replica": {primary, spec(func(m *MySQL) { m.Role = Replica }), ROLE},
		"replica as any":     {replica, spec(func(m *MySQL) { m.MaxLag = time.Minute }), ""},
		"replica as primary": {replica, spec(func(m *MySQL) { m.Role = Primary }), ROLE},
		"database":           {primary, spec(func(m *MySQL) { m.User, m.Password, m.Database = "plain", "hunter two", "app" }), ""},
		"may not ask":        {replica, spec(func(m *MySQL) { m.User, m.Password, m.MaxLag = "plain", "hunter two", time.Second }), L7STS},
		"TLS":                {primary, verified, ""},
		"TLS, unverified":    {primary, unverified, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := probeOnce(c.spec.Prober("tcp", c.server.address), longTimeout)
			if c.want != "" {
				wantReason(t, err, c.want)
			} else if err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("descriptors and aborted clients", func(t *testing.T) {
		manyProbes(t, spec(func(m *MySQL) { m.Role = Primary }).Prober("tcp", primary.address))
		manyProbes(t, verified.Prober("tcp", primary.address))
		if err := probeOnce(spec(nil).Prober("unix", primary.socket), longTimeout); err != nil {
			t.Error(err)
		}
		if now := primary.aborted(t); now != quiet {
			t.Errorf("%d aborted clients, %d before", now, quiet)
		}
	})
	t.Run("refused", func(t *testing.T) { // which the server does count
		for want, spec := range map[Reason]Spec{L7STS: spec(func(m *MySQL) { m.Password = "hunter three" }), L6RSP: otherName} {
			err := probeOnce(spec.Prober("tcp", primary.address), longTimeout)
			wantReason(t, err, want)
			if strings.Contains(err.Error(), "hunter three") {
				t.Errorf("the password is in %q", err)
			}
		}
	})
	t.Run("too many connections", func(t *testing.T) {
		primary.do(t, "SET GLOBAL max_connections = 10") // the least there is
		for range 10 {
			defer primary.hold(t, "SELECT 1")()
		}
		probeUntil(t, spec(nil).Prober("tcp", primary.address), func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "L7STS: Too many connections")
		})
	})
	t.Run("lag", func(t *testing.T) {
		primary.do(t, "SET GLOBAL max_connections = 100")
		brief := spec(func(m *MySQL) { m.MaxLag = time.Second }).Prober("tcp", replica.address)
		replica.do(t, "STOP SLAVE")
		wantReason(t, probeOnce(brief, longTimeout), LAG)
		replica.do(t, "START SLAVE")
		primary.do(t, "CREATE TABLE app.t (i int)")
		probeUntil(t, brief, isUp)
		unlock := replica.hold(t, "FLUSH TABLES WITH READ LOCK")
		primary.do(t, "INSERT INTO app.t VALUES (1)")
		probeUntil(t, brief, func(err error) bool { return err != nil && strings.Contains(err.Error(), "LAG: 2s behind") })
		unlock()
		probeUntil(t, brief, isUp)
	})
	t.Run("promoted", func(t *testing.T) {
		promoted := watchStandby(t, spec(func(m *MySQL) { m.Role = Primary }), replica.address)
		replica.do(t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
		promoted()
		wantReason(t, probeOnce(replicates, longTimeout), ROLE)
		if err := probeOnce(spec(func(m *MySQL) { m.Role, m.MaxLag = Primary, time.Second }).Prober("tcp", replica.address), longTimeout); err != nil {
			t.Error(err)
		}
	})
}

// mysqlPacket frames a payload.
func mysqlPacket(sequence byte, payload string) string {
	header := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	header[3] = sequence
	return string(header) + payload
}

// mysqlGreeting is a server's first packet (HandshakeV10); capabilities are those
// of 4.1 authentication, and TLS if so.
func mysqlGreeting(tls bool) string {
	capabilities := uint16(0x8200) // CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION
	if tls {
		capabilities |= 0x0800 // CLIENT_SSL
	}
	low := string(binary.LittleEndian.AppendUint16(nil, capabilities))
	return mysqlPacket(0, "\x0a5.7.0\x00\x01\x00\x00\x00saltsalt\x00"+low+"\x21\x02\x00\x08\x00\x15"+
		strings.Repeat("\x00", 10)+"saltsaltsalt\x00mysql_native_password\x00")
}

const mysqlOK = "\x00\x00\x00\x02\x00\x00\x00"

// scriptedMySQL greets, and answers each packet of the client with the next of the
// answers; "" is to hang, "close" to close.
func scriptedMySQL(answers ...string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := io.WriteString(conn, mysqlGreeting(false)); err != nil {
			return
		}
		for _, answer := range answers {
			header := make([]byte, 4)
			if _, err := io.ReadFull(conn, header); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, int64(header[0])|int64(header[1])<<8); err != nil {
				return
			}
			switch answer {
			case "":
			case "close":
				return
			default:
				half := len(answer) / 2
				_, _ = io.WriteString(conn, answer[:half])
				time.Sleep(10 * time.Millisecond)
				_, _ = io.WriteString(conn, answer[half:])
			}
		}
		silent(conn)
	}
}

func TestMySQLScripted(t *testing.T) {
	welcome, pong := mysqlPacket(2, mysqlOK), mysqlPacket(1, mysqlOK)
	secure := func(m *MySQL) { m.TLS = true }
	replica := func(m *MySQL) { m.Role = Replica }
	for name, c := range map[string]struct {
		script func(net.Conn)
		change func(*MySQL)
		want   Reason
	}{
		"up":                    {scriptedMySQL(welcome, pong), nil, ""},
		"silent":                {silent, nil, L7TOUT},
		"closes":                {func(net.Conn) {}, nil, L7RSP},
		"another protocol":      {raw("HTTP/1.1 400 Bad Request\r\n\r\n", false), nil, L7RSP},
		"another that closes":   {raw("SSH-2.0-x\r\n", true), nil, L7RSP},
		"too many":              {raw(mysqlPacket(0, "\xff\x10\x04Too many\nconnections"), true), nil, L7STS},
		"greeting cut off":      {raw(mysqlGreeting(false)[:20], true), nil, L7RSP},
		"greeting in part":      {raw(mysqlGreeting(false)[:20], false), nil, L7TOUT},
		"greeting of old":       {raw(mysqlPacket(0, "\x093.23\x00"), false), nil, L7RSP},
		"empty greeting":        {raw(mysqlPacket(0, ""), false), nil, L7RSP},
		"endless":               {raw(strings.Repeat(mysqlPacket(0, strings.Repeat("\x00", 60<<10)), 30), false), nil, L7RSP},
		"long":                  {raw("\xff\xff\xff\x00"+strings.Repeat("x", 2<<20), false), nil, L7RSP},
		"login refused":         {scriptedMySQL(mysqlPacket(2, "\xff\x15\x04#28000Access denied")), nil, L7STS},
		"login unanswered":      {scriptedMySQL(""), nil, L7TOUT},
		"closes at the login":   {scriptedMySQL("close"), nil, L7RSP},
		"ping unanswered":       {scriptedMySQL(welcome, ""), nil, L7TOUT},
		"closes at the ping":    {scriptedMySQL(welcome, "close"), nil, L7RSP},
		"wrong packet":          {scriptedMySQL(welcome, mysqlPacket(7, mysqlOK)), nil, L7RSP},
		"no rows for read_only": {scriptedMySQL(welcome, pong, pong), replica, L7RSP},
		"repeats the password":  {scriptedMySQL(mysqlPacket(2, "\xff\x15\x04#28000no "+mysqlPassword)), nil, L7STS},
		"no TLS":                {scriptedMySQL(), secure, L6RSP},
		"TLS not begun":         {raw(mysqlGreeting(true), false), secure, L6TOUT},
		"TLS cut off":           {raw(mysqlGreeting(true), true), secure, L6RSP},
		"silent about TLS":      {silent, secure, L7TOUT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", c.script)
			timeout := longTimeout
			if c.want == L7TOUT || c.want == L6TOUT {
				timeout = shortTimeout
			}
			begun := time.Now()
			err := s.probe(mysqlSpec(asMySQL(c.change)), timeout)
			if took := time.Since(begun); took > longTimeout/2 {
				t.Errorf("took %s", took)
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantReason(t, err, c.want)
			if strings.Contains(err.Error(), mysqlPassword) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is not fit to be shown", err)
			}
			if n := s.accepted.Load(); n != 1 {
				t.Errorf("%d connections for one probe", n)
			}
		})
	}
}

func TestMySQLReplicaStatus(t *testing.T) {
	p := &mysqlProber{spec: MySQL{MaxLag: 2500 * time.Millisecond}}
	channel := func(name, value string) map[string]string { return map[string]string{name: value} }
	for name, c := range map[string]struct {
		channels []map[string]string
		want     Reason
	}{
		"none":          {nil, LAG},
		"MySQL":         {[]map[string]string{channel("Seconds_Behind_Source", "2")}, ""},
		"MariaDB":       {[]map[string]string{channel("Seconds_Behind_Master", "2")}, ""},
		"late":          {[]map[string]string{channel("Seconds_Behind_Source", "3")}, LAG},
		"one of them":   {[]map[string]string{channel("Seconds_Behind_Source", "0"), channel("Seconds_Behind_Source", "3")}, LAG},
		"stopped":       {[]map[string]string{channel("Seconds_Behind_Source", null)}, LAG},
		"another":       {[]map[string]string{channel("Id", "2")}, L7RSP},
		"not a number":  {[]map[string]string{channel("Seconds_Behind_Source", "x")}, L7RSP},
		"a huge number": {[]map[string]string{channel("Seconds_Behind_Source", "9223372036854775807")}, LAG},
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.judge(c.channels); c.want != "" {
				wantReason(t, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMySQLRefusedAndCancelled(t *testing.T) {
	address, _ := freePort(t)
	wantReason(t, probeOnce(mysqlSpec(asMySQL(nil)).Prober("tcp", address), longTimeout), L4CON)
	cancelled(t, mysqlSpec(asMySQL(nil)))
}
