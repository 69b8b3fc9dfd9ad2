package health

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisProber logs in to a Redis server, pings it, and asks what it is and how far
// behind. One command at a time: what comes next depends on the answer.
type redisProber struct {
	dialer
	spec   Redis
	shaker *shaker // nil = no TLS
}

var redisCheck = Check{Word: "redis", New: newRedisProber, Fails: append(asking, LAG), TLS: func(s Spec) bool { return s.Redis.TLS }}

func newRedisProber(s Spec, network, address string) Prober {
	p := &redisProber{dialer: s.dialer(network, address), spec: s.Redis}
	if s.Redis.TLS {
		p.shaker = s.shaker(p.dialer)
	}
	return p
}

// Probe connects, asks and judges.
func (p *redisProber) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { closePolitely(ctx, conn) }()
	stop := setDeadline(ctx, conn)
	defer stop()
	if p.shaker != nil {
		secure, err := p.shaker.shake(ctx, conn, nil)
		if err != nil {
			return err
		}
		conn = secure
	}
	err = p.ask(conn)
	answered(ctx)
	return err
}

func (p *redisProber) ask(conn net.Conn) error {
	c := &redisClient{conn, newRESPReader(conn), p.spec.Password}
	if p.spec.Password != "" {
		login := []string{"AUTH"}
		if p.spec.User != "" {
			login = append(login, p.spec.User)
		}
		if _, err := c.do(append(login, string(p.spec.Password))...); err != nil {
			return err
		}
	}
	if pong, err := c.do("PING"); err != nil {
		return err
	} else if pong != "PONG" {
		return failf(L7RSP, "an answer other than PONG to PING")
	}
	if p.spec.Role == AnyRole && p.spec.MaxLag == 0 && p.spec.MaxLagBytes == 0 {
		return nil
	}
	text, err := c.do("INFO", "replication")
	if err != nil {
		return err
	}
	return p.judge(redisInfo(text))
}

// judge is what a server says about its replication. A replica knows what it has
// received and not yet applied, and for how long it has been without its master;
// what the master has not sent it cannot know.
func (p *redisProber) judge(info map[string]string) error {
	switch info["role"] {
	case "master":
		return p.spec.Role.check(false)
	case "slave", "replica":
		if err := p.spec.Role.check(true); err != nil {
			return err
		}
	default:
		return failf(L7RSP, "no role in the answer to INFO replication")
	}
	if info["master_link_status"] != "up" {
		return p.cutOff(info)
	}
	if p.spec.MaxLagBytes == 0 {
		return nil
	}
	applied, err := strconv.ParseInt(info["slave_repl_offset"], 10, 64)
	if err != nil {
		return failf(L7RSP, "no slave_repl_offset in the answer to INFO replication")
	}
	received, err := strconv.ParseInt(info["slave_read_repl_offset"], 10, 64)
	if err != nil {
		return nil // before Redis 7.0 a replica applied at once what it read
	}
	if behind := received - applied; behind > int64(p.spec.MaxLagBytes) {
		return failf(LAG, "%d bytes received and not applied, want at most %d", behind, p.spec.MaxLagBytes)
	}
	return nil
}

// cutOff judges a replica without its master. Its data is from when the link broke;
// a first or full synchronization, as long as it goes on, leaves it with less.
func (p *redisProber) cutOff(info map[string]string) error {
	if info["master_sync_in_progress"] == "1" {
		return failf(LAG, "a full synchronization with the master is going on")
	}
	seconds, err := strconv.ParseInt(info["master_link_down_since_seconds"], 10, 64)
	switch {
	case err != nil || seconds < 0: // -1 is never
		return failf(LAG, "the link to the master is down")
	case p.spec.MaxLag == 0 || seconds > int64(p.spec.MaxLag/time.Second):
		return failf(LAG, "the link to the master has been down for %ds", seconds)
	}
	return nil
}

// redisInfo reads the lines "name:value" of INFO.
func redisInfo(reply any) map[string]string {
	text, _ := reply.(string)
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// redisClient asks one thing after the other.
type redisClient struct {
	conn     net.Conn
	replies  *respReader
	password Secret
}

// do returns the reply to a command. An error is a *Failure.
func (c *redisClient) do(command ...string) (any, error) {
	if _, err := c.conn.Write(appendCommand(nil, command...)); err != nil {
		return nil, answerFailure(err)
	}
	reply, err := c.replies.read()
	refusal := respError("")
	switch {
	case errors.As(err, &refusal):
		return nil, refused(command[0], said(string(refusal), c.password))
	case err != nil:
		return nil, asFailure(err)
	}
	return reply, nil
}

// refused sorts error replies by their first word.
func refused(command, text string) *Failure {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "LOADING": // up, and not able to answer until its data is read
		return failf(L7RSP, "%s: %s", command, text)
	case "MASTERDOWN": // with replica-serve-stale-data no
		return failf(LAG, "%s: %s", command, text)
	}
	return failf(L7STS, "%s: %s", command, text)
}
