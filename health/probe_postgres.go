package health

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// postgresProber logs in, asks a PostgreSQL server what it is and how far behind,
// and says goodbye.
type postgresProber struct {
	dialer
	spec   Postgres
	shaker *shaker // nil = no TLS

	// caughtUp is when the replica was last seen streaming with nothing left to
	// replay: what it shows is at least as fresh. It belongs to Probe.
	caughtUp time.Time
}

var postgresCheck = Check{Word: "postgres", New: newPostgresProber, Fails: append(asking, LAG), TLS: func(s Spec) bool { return s.Postgres.TLS }}

func newPostgresProber(s Spec, network, address string) Prober {
	p := &postgresProber{dialer: s.dialer(network, address), spec: s.Postgres}
	if s.Postgres.TLS && network != "unix" { // which PostgreSQL never encrypts
		p.shaker = s.shaker(p.dialer)
	}
	return p
}

// Probe logs in, asks, judges and terminates the session.
func (p *postgresProber) Probe(ctx context.Context) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	l := lend(conn)
	config.DialFunc = l.dial
	if config.TLSConfig, err = l.secure(ctx, p.shaker); err != nil {
		return err
	}
	// Ends in time without ctx: conn has its deadline.
	session, err := pgconn.ConnectConfig(context.Background(), config)
	if err == nil {
		err = p.ask(session)
		answered(ctx)
		_ = session.Close(context.Background()) // sends Terminate
	}
	return p.explain(l, err)
}

// config is how to log in. pgconn insists on having parsed it, and on mixing in
// the environment's PG variables and files of the home folder; what they could say
// is said explicitly. Of a host that is a socket's folder it looks at nothing that
// concerns TLS.
func (p *postgresProber) config() (*pgconn.Config, error) {
	config, err := pgconn.ParseConfig("host=/ port=5432 user=- password=- passfile=/dev/null sslmode=disable sslcertmode=disable" +
		" sslnegotiation=postgres connect_timeout=0 target_session_attrs=any channel_binding=prefer require_auth=''" +
		" min_protocol_version=3.0 max_protocol_version=3.0")
	if err != nil { // PGSERVICE, which cannot be overruled
		return nil, fmt.Errorf("%w: unset the environment's PG variables: %w", ErrLocal, rootCause(err))
	}
	config.Host = "backend" // which is never looked up
	config.User, config.Password, config.Database = p.spec.User, string(p.spec.Password), p.spec.Database
	config.RuntimeParams = map[string]string{"application_name": "poise"}
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	config.MaxProtocolMessageBodyLen = maxLent
	return config, nil
}

// The questions. A replica has caught up if it is connected to its primary (only
// then does pg_stat_wal_receiver have a row, and anybody may count it) and has
// replayed what it received: of an idle primary the last transaction can be old.
// Replay may be ahead of what was received, after a restart.
const (
	askAlive = "SELECT 1"
	askRole  = "SELECT pg_is_in_recovery()"
	askLag   = "SELECT pg_is_in_recovery()," +
		" EXISTS (SELECT FROM pg_stat_wal_receiver) AND pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()," +
		" EXTRACT(EPOCH FROM clock_timestamp() - pg_last_xact_replay_timestamp())"
)

func (p *postgresProber) ask(session *pgconn.PgConn) error {
	question, columns := askAlive, 1
	switch {
	case p.spec.MaxLag > 0:
		question, columns = askLag, 3
	case p.spec.Role != AnyRole:
		question = askRole
	}
	asked := time.Now()
	results, err := session.Exec(context.Background(), question).ReadAll()
	switch {
	case err != nil:
		return err
	case len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != columns:
		return failf(L7RSP, "something else than one row of %d in answer to %s", columns, question)
	case question == askAlive:
		return nil
	}
	return p.judge(results[0].Rows[0], asked)
}

// judge is what the answer to askRole or askLag, asked at now, says.
func (p *postgresProber) judge(row [][]byte, now time.Time) error {
	replica := string(row[0]) == "t"
	if err := p.spec.Role.check(replica); err != nil || !replica || p.spec.MaxLag == 0 {
		return err
	}
	if string(row[1]) == "t" {
		p.caughtUp = now
		return nil
	}
	lag, known := time.Duration(0), false
	if seconds, err := strconv.ParseFloat(string(row[2]), 64); err == nil { // NULL if nothing was ever replayed
		lag, known = time.Duration(min(seconds, 1e9)*float64(time.Second)), true // some 30 years, which fit
	}
	if since := now.Sub(p.caughtUp); !p.caughtUp.IsZero() && (!known || since < lag) {
		lag, known = since, true
	}
	switch {
	case !known:
		return failf(LAG, "the replica has replayed nothing yet")
	case lag > p.spec.MaxLag:
		return failf(LAG, "%s behind, want at most %s", lag.Round(time.Millisecond), p.spec.MaxLag)
	}
	return nil
}

// explain turns what pgconn returned into a Failure.
func (p *postgresProber) explain(l *lent, err error) error {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return failf(L7STS, "%s (SQLSTATE %s)", said(pg.Message, p.spec.Password), said(pg.Code, ""))
	}
	if err != nil && p.shaker != nil && l.untouched() {
		return &Failure{L6RSP, rootCause(err)} // pgconn says that TLS was refused
	}
	return l.failure(err)
}
