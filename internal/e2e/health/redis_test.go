package health

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// A redisServer is a real Redis.
type redisServer struct {
	*rig.Server
	addr string
}

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	path := rig.Program(t, "redis-server")
	r := &redisServer{addr: rig.Addr(t)}
	host, port, _ := net.SplitHostPort(r.addr)
	cmd := exec.Command(path, "--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no", "--loglevel", "warning")
	r.Server = rig.StartServer(t, cmd, syscall.SIGKILL, func() bool {
		c, err := dialRedis(r.addr)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.do("PING")
		return err == nil
	})
	return r
}

// redisClient speaks RESP2 (https://redis.io/docs/reference/protocol-spec): as
// much of it as the tests need.
type redisClient struct {
	net.Conn
	r *bufio.Reader
}

func dialRedis(addr string) (*redisClient, error) {
	c, err := net.DialTimeout("tcp", addr, rig.Patience)
	if err != nil {
		return nil, err
	}
	return &redisClient{c, bufio.NewReader(c)}, c.SetDeadline(time.Now().Add(3 * rig.Patience))
}

func mustDialRedis(t *testing.T, addr string) *redisClient {
	t.Helper()
	c, err := dialRedis(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// do sends one command and returns its answer.
func (c *redisClient) do(args ...string) (string, error) {
	if _, err := c.Write(command(nil, args...)); err != nil {
		return "", err
	}
	return c.answer()
}

// command appends a command as an array of bulk strings.
func command(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// answer reads one value; the elements of an array are separated by spaces.
func (c *redisClient) answer() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil {
			return "", err
		}
		b := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(c.r, b)
		return string(b[:n]), err
	case '*':
		n, err := strconv.Atoi(rest)
		var parts []string
		for range n {
			var part string
			if part, err = c.answer(); err != nil {
				break
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, " "), err
	}
	return "", fmt.Errorf("answer %q", line)
}

// Redis, one of it: pipelines, values larger than any buffer, subscriptions.
func TestRedis(t *testing.T) {
	redis := startRedis(t)
	listen := rig.Addr(t)
	yaml := rig.WebConfig(listen, "", "balance: least-conn, check: {type: tcp, interval: 100ms}", rig.Member("redis", redis.addr))
	p := rig.Start(t, yaml)

	// More than the sockets' buffers hold: both directions move at once.
	const commands = 20_000
	c := mustDialRedis(t, listen)
	var pipeline []byte
	for i := range commands {
		pipeline = command(pipeline, "SET", fmt.Sprintf("key:%d", i), fmt.Sprintf("value:%d", i))
		pipeline = command(pipeline, "GET", fmt.Sprintf("key:%d", i))
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := c.Write(pipeline); err != nil {
			t.Error(err)
		}
	})
	for i := range commands {
		ok, err1 := c.answer()
		value, err2 := c.answer()
		if want := fmt.Sprintf("value:%d", i); ok != "OK" || value != want || err1 != nil || err2 != nil {
			t.Fatalf("%q and %q, %v, %v, want OK and %s", ok, value, err1, err2, want)
		}
	}
	sending.Wait()

	large := strings.Repeat("0123456789abcdef", 1<<20)
	if _, err := c.do("SET", "large", large); err != nil {
		t.Fatal(err)
	}
	if got, err := c.do("GET", "large"); got != large || err != nil {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(large), err)
	}

	// A subscription outlives reloads, and pauses.
	sub := mustDialRedis(t, listen)
	if got, err := sub.do("SUBSCRIBE", "news"); got != "subscribe news 1" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	for i := range 5 {
		p.MustReload(t, strings.Replace(yaml, "100ms", fmt.Sprintf("%dms", 101+i), 1))
		text := fmt.Sprintf("message %d", i)
		if got, err := c.do("PUBLISH", "news", text); got != "1" || err != nil {
			t.Fatalf("it has %q subscribers, %v", got, err)
		}
		if got, err := sub.answer(); got != "message news "+text || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Redis, three of it: 50 clients reconnect all the time while one is killed. What
// was open to it at that moment breaks, as it must; no new connection does.
func TestRedisKilled(t *testing.T) {
	const clients = 50
	var redis [3]*redisServer
	for i := range redis {
		redis[i] = startRedis(t)
	}
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: least-conn, check: {type: tcp, interval: 200ms, fast_interval: 100ms, fall: 2}",
		rig.Member("redis1", redis[0].addr), rig.Member("redis2", redis[1].addr), rig.Member("redis3", redis[2].addr)))

	var killed atomic.Bool // it has gone
	var made, broken atomic.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				before := !killed.Load()
				err := redisSession(listen, i)
				switch {
				case err == nil:
					made.Add(1)
				case before && rig.IsBroken(err):
					broken.Add(1)
				default:
					t.Errorf("the killed one had gone before: %v, %v", !before, err)
				}
			}
		})
	}
	more := func(n int64) {
		seen := made.Load()
		rig.Eventually(t, "more sessions", func() bool { return made.Load() >= seen+n })
	}
	more(1000)
	redis[1].Kill()
	killed.Store(true)
	more(500)
	rig.Eventually(t, "it to be down", func() bool { return p.Backend(t, "web", "redis2").State == "down" })
	more(500)
	close(stop)
	running.Wait()
	// A client has one connection at a time.
	if n := broken.Load(); n > clients {
		t.Errorf("%d broke", n)
	}
	t.Logf("%d sessions, %d broke with the one that was killed", made.Load(), broken.Load())
	for _, name := range []string{"redis1", "redis2", "redis3"} {
		if b := p.Backend(t, "web", name); b.Total < 100 {
			t.Errorf("%+v", b)
		}
	}
}

// redisSession connects, sends a pipeline and compares what comes back.
func redisSession(listen string, i int) error {
	c, err := dialRedis(listen)
	if err != nil {
		return err
	}
	defer c.Close()
	key, value := fmt.Sprintf("client:%d", i), bytes.Repeat([]byte{'a' + byte(i%26)}, 100)
	if _, err := c.Write(command(command(nil, "SET", key, string(value)), "GET", key)); err != nil {
		return err
	}
	if _, err := c.answer(); err != nil {
		return err
	}
	got, err := c.answer()
	if err == nil && got != string(value) {
		return fmt.Errorf("got %q", got)
	}
	return err
}

// A promotion is followed within two intervals, though down_interval is far longer, and
// a server on standby is nothing to worry about.
func TestRedisPromoted(t *testing.T) {
	t.Parallel()
	one, two := startRedis(t), startRedis(t)
	follow := func(r, of *redisServer) {
		t.Helper()
		host, port := "NO", "ONE"
		if of != nil {
			host, port, _ = net.SplitHostPort(of.addr)
		}
		if _, err := mustDialRedis(t, r.addr).do("REPLICAOF", host, port); err != nil {
			t.Fatal(err)
		}
	}
	follow(two, one)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "panic: 100, on_down: close, check: {type: redis, interval: 300ms, down_interval: 1h, rise: 5, fall: 5, redis: {role: master}}",
		rig.Member("one", one.addr), rig.Member("two", two.addr)))
	states := func(first, second string) func() bool {
		return func() bool {
			return p.Backend(t, "web", "one").State == first && p.Backend(t, "web", "two").State == second
		}
	}
	rig.Eventually(t, "two to be on standby", states("up", "standby"))
	for range 20 {
		if _, err := mustDialRedis(t, listen).do("SET", "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	m := p.Metrics(t)
	if m.Sum("poise_backend_state", `backend="two"`, `state="standby"`) != 1 || m.Sum("poise_backend_check_failures_total", `backend="two"`) != 0 {
		t.Error("the metrics do not say that two is on standby and well")
	}
	if out, _, code := rig.CLI(t, "status", "--socket", p.Socket()); code != 0 || !strings.Contains(out, "1 of 1 in use, 1 on standby") {
		t.Error(out)
	}
	held := mustDialRedis(t, listen)
	if _, err := held.do("PING"); err != nil {
		t.Fatal(err)
	}
	follow(two, nil)
	follow(one, two)
	rig.Eventually(t, "two to be the primary", states("standby", "up"))
	if _, err := held.do("SET", "k", "v"); err == nil {
		t.Error("a connection to the former primary goes on")
	}
	if _, err := mustDialRedis(t, listen).do("SET", "k", "v"); err != nil {
		t.Error(err)
	}
}
