package health

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

func redisSpec(r Redis) Spec { return Spec{Type: "redis", Redis: r} }

const redisPassword = "correct horse"

// startRedis runs a server with the password above for the default user.
func startRedis(t *testing.T, args ...string) *server {
	t.Helper()
	path := program(t, "redis-server")
	dir := serverDir(t)
	address, port := freePort(t)
	args = append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
		"--requirepass", redisPassword, "--masterauth", redisPassword, "--repl-diskless-sync-delay", "0",
	}, args...)
	return start(t, syscall.SIGTERM, address, dir, path, args...)
}

// redisDo is one command on a connection of its own.
func redisDo(t *testing.T, address string, command ...string) any {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &redisClient{conn, newRESPReader(conn), ""}
	if _, err := c.do("AUTH", redisPassword); err != nil {
		t.Fatal(err)
	}
	reply, err := c.do(command...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestRedisMasterAndReplica(t *testing.T) {
	master := startRedis(t)
	login := redisSpec(Redis{Password: redisPassword})
	awaitUp(t, master, login)
	host, port, _ := net.SplitHostPort(master.address)
	replica := startRedis(t, "--replicaof", host+" "+port)
	awaitUp(t, replica, redisSpec(Redis{Password: redisPassword, Role: Replica}))
	redisDo(t, master.address, "ACL", "SETUSER", "poise", "on", ">hunter two", "-@all", "+ping", "+info")

	for name, c := range map[string]struct {
		server *server
		redis  Redis
		want   Reason // "" = up
	}{
		"master as any":      {master, Redis{Password: redisPassword}, ""},
		"master as master":   {master, Redis{Password: redisPassword, Role: Primary, MaxLag: time.Second}, ""},
		"master as replica":  {master, Redis{Password: redisPassword, Role: Replica}, ROLE},
		"replica as replica": {replica, Redis{Password: redisPassword, Role: Replica, MaxLag: time.Second, MaxLagBytes: 1 << 20}, ""},
		"replica as any":     {replica, Redis{Password: redisPassword, MaxLag: time.Second}, ""},
		"replica as master":  {replica, Redis{Password: redisPassword, Role: Primary}, ROLE},
		"ACL user":           {master, Redis{User: "poise", Password: "hunter two", Role: Primary}, ""},
		"ACL user, wrong":    {master, Redis{User: "poise", Password: "hunter three"}, L7STS},
		"no password":        {master, Redis{}, L7STS},
		"wrong password":     {master, Redis{Password: "wrong"}, L7STS},
	} {
		t.Run(name, func(t *testing.T) {
			err := probeOnce(redisSpec(c.redis).Prober("tcp", c.server.address), longTimeout)
			if c.want == "" && err != nil {
				t.Fatal(err)
			}
			if c.want != "" {
				wantReason(t, err, c.want)
				if c.redis.Password != "" && strings.Contains(err.Error(), string(c.redis.Password)) {
					t.Errorf("the password is in %q", err)
				}
			}
		})
	}

	t.Run("descriptors and connections", func(t *testing.T) {
		manyProbes(t, redisSpec(Redis{Password: redisPassword, Role: Primary}).Prober("tcp", master.address))
		eventually(t, func() bool {
			clients := redisDo(t, master.address, "CLIENT", "LIST", "TYPE", "normal").(string)
			return strings.Count(clients, "\n") == 1 // the one that asks
		})
	})

	t.Run("master gone", func(t *testing.T) {
		patient := redisSpec(Redis{Password: redisPassword, Role: Replica, MaxLag: time.Hour}).Prober("tcp", replica.address)
		strict := redisSpec(Redis{Password: redisPassword, Role: Replica}).Prober("tcp", replica.address)
		brief := redisSpec(Redis{Password: redisPassword, MaxLag: time.Second}).Prober("tcp", replica.address)
		master.stop(syscall.SIGKILL)
		probeUntil(t, strict, has(LAG))
		if err := probeOnce(patient, longTimeout); err != nil {
			t.Error(err)
		}
		probeUntil(t, brief, has(LAG))
		redisDo(t, replica.address, "CONFIG", "SET", "replica-serve-stale-data", "no")
		wantReason(t, probeOnce(redisSpec(Redis{Password: redisPassword}).Prober("tcp", replica.address), longTimeout), LAG)
		redisDo(t, replica.address, "CONFIG", "SET", "replica-serve-stale-data", "yes")
		promoted := watchStandby(t, redisSpec(Redis{Password: redisPassword, Role: Primary}), replica.address)
		redisDo(t, replica.address, "REPLICAOF", "NO", "ONE")
		promoted()
		wantReason(t, probeOnce(strict, longTimeout), ROLE)
	})
}

func TestRedisTLS(t *testing.T) {
	dir := serverDir(t)
	cert, key := serverCertificate(t, dir)
	address, port := freePort(t)
	s := start(t, syscall.SIGTERM, address, dir, program(t, "redis-server"),
		"--port", "0", "--tls-port", port, "--bind", "127.0.0.1", "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-auth-clients", "no", "--dir", dir, "--save", "")
	spec := redisSpec(Redis{TLS: true, Role: Primary})
	spec.TLS = TLS{ServerName: "db.test", CA: cert}
	awaitUp(t, s, spec)
	manyProbes(t, spec.Prober("tcp", address))
	spec.TLS.ServerName = "other.test"
	wantReason(t, probeOnce(spec.Prober("tcp", address), longTimeout), L6RSP)
	spec.TLS = TLS{NoVerify: true}
	if err := probeOnce(spec.Prober("tcp", address), longTimeout); err != nil {
		t.Error(err)
	}
	wantReason(t, probeOnce(redisSpec(Redis{}).Prober("tcp", address), longTimeout), L7RSP)
}

// redisReplies is a server that answers each command with the next of the replies, and
// then, if close, ends; a reply may be in pieces, separated by "|".
func redisReplies(ends bool, replies ...string) func(net.Conn) {
	return func(conn net.Conn) {
		r := newRESPReader(conn)
		for _, reply := range replies {
			if _, err := r.read(); err != nil {
				return
			}
			for i, piece := range strings.Split(reply, "|") {
				if i > 0 {
					time.Sleep(20 * time.Millisecond)
				}
				if _, err := io.WriteString(conn, piece); err != nil {
					return
				}
			}
		}
		if !ends {
			silent(conn)
		}
	}
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// Case O-12 for Redis: answers that are late, in pieces, wrong or without an end.
func TestRedisScripted(t *testing.T) {
	const replica = "role:slave\r\nmaster_link_status:up\r\nslave_read_repl_offset:900\r\nslave_repl_offset:100\r\n"
	wants := Redis{Role: Replica, MaxLagBytes: 1000}
	for name, c := range map[string]struct {
		script func(net.Conn)
		redis  Redis
		want   Reason
	}{
		"in pieces":               {redisReplies(false, "+P|ON|G\r|\n"), Redis{}, ""},
		"wrong text":              {redisReplies(true, "+PANG\r\n"), Redis{}, L7RSP},
		"another protocol":        {redisReplies(false, "HTTP/1.1 400 Bad Request\r\n"), Redis{}, L7RSP},
		"another, cut off":        {redisReplies(true, "DEAD"), Redis{}, L7RSP},
		"without CR":              {redisReplies(false, "+PONG\n"), Redis{}, L7RSP},
		"cut off":                 {redisReplies(true, "+PO"), Redis{}, L7RSP},
		"closed":                  {redisReplies(true), Redis{}, L7RSP},
		"loading":                 {redisReplies(false, "-LOADING Redis is loading the dataset in memory\r\n"), Redis{}, L7RSP},
		"stale":                   {redisReplies(false, "-MASTERDOWN Link with MASTER is down\r\n"), Redis{}, LAG},
		"busy":                    {redisReplies(false, "-BUSY Redis is busy running a script\r\n"), Redis{}, L7STS},
		"silent":                  {silent, Redis{}, L7TOUT},
		"partial, then silent":    {redisReplies(false, "+PON"), Redis{}, L7TOUT},
		"silent after the ping":   {redisReplies(false, "+PONG\r\n"), wants, L7TOUT},
		"no TLS":                  {silent, Redis{TLS: true}, L6TOUT},
		"endless line":            {redisReplies(false, "+"+strings.Repeat("x", 10<<10)), Redis{}, L7RSP},
		"endless array":           {redisReplies(false, "*1000000\r\n"+strings.Repeat(":1\r\n", 100<<10)), Redis{}, L7RSP},
		"deep array":              {redisReplies(false, strings.Repeat("*1\r\n", 100)), Redis{}, L7RSP},
		"bulk too long":           {redisReplies(false, "$5\r\nPONGONG\r\n"), Redis{}, L7RSP},
		"number for pong":         {redisReplies(false, ":1\r\n"), Redis{}, L7RSP},
		"lag within":              {redisReplies(false, "+PONG\r\n", bulk(replica)), wants, ""},
		"lag in pieces":           {redisReplies(false, "+PONG\r\n", "$"+fmt.Sprint(len(replica))+"|\r\n"+replica[:20]+"|"+replica[20:]+"\r\n"), wants, ""},
		"lag beyond":              {redisReplies(false, "+PONG\r\n", bulk(replica)), Redis{Role: Replica, MaxLagBytes: 500}, LAG},
		"no offset":               {redisReplies(false, "+PONG\r\n", bulk("role:slave\r\nmaster_link_status:up\r\n")), wants, L7RSP},
		"before 7.0":              {redisReplies(false, "+PONG\r\n", bulk("role:slave\r\nmaster_link_status:up\r\nslave_repl_offset:5\r\n")), wants, ""},
		"full synchronization":    {redisReplies(false, "+PONG\r\n", bulk("role:slave\r\nmaster_link_status:down\r\nmaster_sync_in_progress:1\r\n")), Redis{Role: Replica, MaxLag: time.Hour}, LAG},
		"down for long":           {redisReplies(false, "+PONG\r\n", bulk("role:slave\r\nmaster_link_status:down\r\nmaster_link_down_since_seconds:11\r\n")), Redis{MaxLag: 10 * time.Second}, LAG},
		"down for a while":        {redisReplies(false, "+PONG\r\n", bulk("role:slave\r\nmaster_link_status:down\r\nmaster_link_down_since_seconds:9\r\n")), Redis{MaxLag: 10 * time.Second}, ""},
		"never up":                {redisReplies(false, "+PONG\r\n", bulk("role:slave\r\nmaster_link_status:down\r\nmaster_link_down_since_seconds:-1\r\n")), Redis{MaxLag: time.Hour}, LAG},
		"no role":                 {redisReplies(false, "+PONG\r\n", bulk("# Replication\r\n")), wants, L7RSP},
		"null":                    {redisReplies(false, "+PONG\r\n", "$-1\r\n"), wants, L7RSP},
		"an array for text":       {redisReplies(false, "+PONG\r\n", "*2\r\n+a\r\n-ERR b\r\n"), wants, L7RSP},
		"renamed AUTH, repeating": {redisReplies(false, "-ERR unknown command 'AUTH', with args beginning with: 's3cret!!'\r\n"), Redis{Password: "s3cret!!"}, L7STS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", c.script)
			timeout := longTimeout
			if c.want == L7TOUT || c.want == L6TOUT {
				timeout = shortTimeout
			}
			begun := time.Now()
			err := s.probe(redisSpec(c.redis), timeout)
			if took := time.Since(begun); took > longTimeout/2 {
				t.Errorf("took %s", took)
			}
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantReason(t, err, c.want)
			if strings.Contains(err.Error(), "s3cret!!") {
				t.Errorf("the password is in %q", err)
			}
		})
	}
}

func TestRedisRefusedAndCancelled(t *testing.T) {
	address, _ := freePort(t)
	wantReason(t, probeOnce(redisSpec(Redis{}).Prober("tcp", address), longTimeout), L4CON)
	cancelled(t, redisSpec(Redis{}))
	unix := newScripted(t, "unix", redisReplies(false, "+PONG\r\n"))
	if err := unix.probe(redisSpec(Redis{}), longTimeout); err != nil {
		t.Error(err)
	}
}

// A Redis that has read our end sees no reset.
func TestRedisProbeEndsInOrder(t *testing.T) {
	ends := make(chan error, 1)
	s := newScripted(t, "tcp", func(conn net.Conn) {
		redisReplies(true, "+PONG\r\n")(conn)
		_, err := io.Copy(io.Discard, bufio.NewReader(conn))
		ends <- err
	})
	if err := s.probe(redisSpec(Redis{}), longTimeout); err != nil {
		t.Fatal(err)
	}
	if err := <-ends; err != nil {
		t.Error(err)
	}
}

func FuzzRESP(f *testing.F) {
	f.Add("+PONG\r\n")
	f.Add("*2\r\n$1\r\na\r\n:5\r\n")
	f.Add("-ERR no\r\n")
	f.Add("*-1\r\n$-1\r\n")
	f.Fuzz(func(t *testing.T, input string) {
		r := newRESPReader(strings.NewReader(input))
		for {
			_, err := r.read()
			refusal := respError("")
			if err != nil && !errors.As(err, &refusal) {
				return
			}
		}
	})
}

func TestSecretDoesNotShow(t *testing.T) {
	spec := redisSpec(Redis{Password: "hunter2"})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, spec.Redis); strings.Contains(text, "hunter2") {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}
