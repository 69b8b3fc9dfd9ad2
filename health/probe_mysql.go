package health

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mysqlProber logs in to a MySQL or MariaDB server, asks whether it is read-only
// and how far behind, and says goodbye: without COM_QUIT the server would count an
// aborted client.
type mysqlProber struct {
	dialer
	spec   MySQL
	shaker *shaker // nil = no TLS
}

var mysqlCheck = Check{Word: "mysql", New: newMySQLProber, Fails: append(asking, LAG), TLS: func(s Spec) bool { return s.MySQL.TLS }}

func newMySQLProber(s Spec, network, address string) Prober {
	p := &mysqlProber{dialer: s.dialer(network, address), spec: s.MySQL}
	if s.MySQL.TLS {
		p.shaker = s.shaker(p.dialer)
	}
	return p
}

// Probe logs in, asks, judges and quits.
func (p *mysqlProber) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	l := lend(conn)
	log := &firstError{}
	connector, err := p.connector(ctx, l, log)
	if err != nil {
		return err
	}
	if err := greets(l); err != nil {
		return err
	}
	// Ends in time without ctx: conn has its deadline.
	session, err := connector.Connect(context.Background())
	if err == nil {
		err = p.ask(session)
		answered(ctx)
		_ = session.Close() // sends COM_QUIT
	}
	return p.explain(l, log, err)
}

// greets looks at the header of the server's first packet, which is number 0 and
// of some 100 bytes. The driver would take another protocol's text for a length
// and wait for megabytes that never come.
func greets(l *lent) error {
	head, err := l.peek(4)
	switch {
	case err != nil:
		return answerFailure(err)
	case head[2] != 0 || head[3] != 0:
		return failf(L7RSP, "not a MySQL greeting: %q", head)
	}
	return nil
}

func (p *mysqlProber) connector(ctx context.Context, l *lent, log mysql.Logger) (driver.Connector, error) {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.DBName = p.spec.User, string(p.spec.Password), p.spec.Database
	config.Net, config.Addr = p.network, p.address
	config.DialFunc = l.dial
	config.Logger = log
	config.CheckConnLiveness = false
	config.ConnectionAttributes = "program_name:poise"
	var err error
	if config.TLS, err = l.secure(ctx, p.shaker); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLocal, err)
	}
	return connector, nil
}

func (p *mysqlProber) ask(session driver.Conn) error {
	if err := session.(driver.Pinger).Ping(context.Background()); err != nil {
		return err
	}
	if p.spec.Role == AnyRole && p.spec.MaxLag == 0 {
		return nil
	}
	rows, err := query(session, "SELECT @@global.read_only")
	switch {
	case err != nil:
		return err
	case len(rows) != 1 || len(rows[0]) != 1:
		return failf(L7RSP, "read_only is no single value")
	}
	replica := true
	for _, value := range rows[0] {
		replica = value != "0" && value != "OFF" // newer versions of MariaDB have words
	}
	if err := p.spec.Role.check(replica); err != nil || !replica || p.spec.MaxLag == 0 {
		return err
	}
	channels, err := replication(session)
	if err != nil {
		return err
	}
	return p.judge(channels)
}

// replication asks for the state of the server's replication channels. Servers
// before MySQL 8.0.22 and MariaDB 10.5 know the older words only.
func replication(session driver.Conn) ([]map[string]string, error) {
	const syntaxError = 1064 // ER_PARSE_ERROR
	rows, err := query(session, "SHOW REPLICA STATUS")
	if my := (*mysql.MySQLError)(nil); errors.As(err, &my) && my.Number == syntaxError {
		return query(session, "SHOW SLAVE STATUS")
	}
	return rows, err
}

// judge is what the state of a replica's channels says: the worst of them counts.
func (p *mysqlProber) judge(channels []map[string]string) error {
	if len(channels) == 0 {
		return failf(LAG, "the server is read-only and replicates from nowhere")
	}
	for _, channel := range channels {
		text, ok := channel["Seconds_Behind_Source"]
		if !ok {
			text, ok = channel["Seconds_Behind_Master"]
		}
		switch seconds, err := strconv.ParseInt(text, 10, 64); {
		case !ok:
			return failf(L7RSP, "no column Seconds_Behind_Source in the replica's status")
		case text == null:
			return failf(LAG, "replication does not run")
		case err != nil:
			return failf(L7RSP, "%q is no number of seconds", text)
		case seconds > int64(p.spec.MaxLag/time.Second):
			return failf(LAG, "%ds behind, want at most %s", seconds, p.spec.MaxLag)
		}
	}
	return nil
}

// null is how query writes NULL.
const null = "NULL"

// query returns all rows, by the names of their columns.
func query(session driver.Conn, text string) ([]map[string]string, error) {
	rows, err := session.(driver.QueryerContext).QueryContext(context.Background(), text, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns := rows.Columns()
	values := make([]driver.Value, len(columns))
	var all []map[string]string
	for {
		switch err := rows.Next(values); {
		case err == io.EOF:
			return all, nil
		case err != nil:
			return nil, err
		}
		row := map[string]string{}
		for i, name := range columns {
			switch v := values[i].(type) {
			case nil:
				row[name] = null
			case []byte:
				row[name] = string(v)
			default:
				row[name] = fmt.Sprint(v)
			}
		}
		all = append(all, row)
	}
}

// explain turns what the driver returned into a Failure.
func (p *mysqlProber) explain(l *lent, log *firstError, err error) error {
	if my := (*mysql.MySQLError)(nil); errors.As(err, &my) {
		return failf(L7STS, "%s (error %d)", said(my.Message, p.spec.Password), my.Number)
	}
	if errors.Is(err, mysql.ErrNoTLS) {
		return &Failure{L6RSP, err}
	}
	if errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) {
		err = log.or(err)
	}
	return l.failure(err)
}

// firstError is a logger that keeps the first error. The driver logs what broke a
// connection and returns that it is broken.
type firstError struct{ err error }

// Print keeps the error among v.
func (f *firstError) Print(v ...any) {
	if f.err == nil {
		i := slices.IndexFunc(v, func(x any) bool { _, ok := x.(error); return ok })
		if i >= 0 {
			f.err = v[i].(error)
		}
	}
}

func (f *firstError) or(err error) error {
	if f.err != nil {
		return f.err
	}
	return err
}
