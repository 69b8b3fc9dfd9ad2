package health

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// ends waits for the end of every connection and returns when each came, sorted.
func ends(t *testing.T, list []*rig.Client) []time.Time {
	t.Helper()
	at := make([]time.Time, len(list))
	var reading sync.WaitGroup
	for i, c := range list {
		reading.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(rig.Patience))
			_, err := c.Reader.ReadByte()
			if ne, ok := err.(net.Error); err == nil || ok && ne.Timeout() {
				t.Errorf("still open: %v", err)
			}
			at[i] = time.Now()
		})
	}
	reading.Wait()
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// Case O-06: connections to a backend that goes down are closed within one check
// cycle, but not all at once.
func TestOnDownIsSpread(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	listen := rig.Addr(t)
	const interval = time.Second
	p := rig.Start(t, rig.WebConfig(listen, "", fmt.Sprintf("balance: first, on_down: close, check: {type: http, port: %d, interval: %s, fast_interval: 100ms, fall: 2}", s.port, interval),
		rig.Member("a", s.a.Addr()), rig.Member("b", s.b.Addr())))
	list := s.clients(t, listen)
	s.aFails.Store(true)
	at := ends(t, list)
	took := at[len(at)-1].Sub(at[0])
	t.Logf("%d connections were closed within %v", len(at), took)
	if took < interval/4 {
		t.Errorf("all were closed within %v", took)
	}
	rig.Eventually(t, "20 lines in the access log", func() bool { return strings.Count(p.Stdout(), "/backend_down ") == 20 })
}

// Case O-06: connections to a backend that is configured no longer.
func TestOnRemove(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome string
		least   time.Duration
	}{
		"close":      {"backend_down", 0},
		"drain 1.5s": {"drained", 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
			listen := rig.Addr(t)
			pool := "balance: first, on_remove: " + name + ", check: {interval: 200ms, fast_interval: 200ms}"
			p := rig.Start(t, rig.WebConfig(listen, "", pool, rig.Member("a", a.Addr()), rig.Member("b", b.Addr())))
			var list []*rig.Client
			for range 10 {
				c := rig.Dial(t, listen)
				if who := c.MustAsk(t); who != "a" {
					t.Fatal(who)
				}
				list = append(list, c)
			}
			began := time.Now()
			p.MustReload(t, rig.WebConfig(listen, "", pool, rig.Member("b", b.Addr())))
			if who, err := rig.Ask(listen); err != nil || who != "b" {
				t.Errorf("a new one: %q, %v", who, err)
			}
			if first := ends(t, list)[0].Sub(began); first < tt.least {
				t.Errorf("the first was closed after %v", first)
			}
			rig.Eventually(t, "the access log", func() bool { return strings.Count(p.Stdout(), "/"+tt.outcome+" ") == 10 })
			if who, err := rig.Ask(listen); err != nil || who != "b" {
				t.Errorf("afterwards: %q, %v", who, err)
			}
		})
	}
}

// A backend that is configured again before its drain time is over keeps its
// connections.
func TestOnRemoveTakenBack(t *testing.T) {
	t.Parallel()
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	pool := "balance: first, on_remove: drain 1s, check: {type: none}"
	with := rig.WebConfig(listen, "", pool, rig.Member("a", a.Addr()), rig.Member("b", b.Addr()))
	p := rig.Start(t, with)
	c := rig.Dial(t, listen)
	c.MustAsk(t)
	p.MustReload(t, rig.WebConfig(listen, "", pool, rig.Member("b", b.Addr())))
	p.MustReload(t, with)
	time.Sleep(2500 * time.Millisecond) // its end would be due by now
	if who := c.MustAsk(t); who != "a" {
		t.Error(who)
	}
}

// Sessions move back from the backups when a primary is there again.
func TestCloseBackupOnRecovery(t *testing.T) {
	t.Parallel()
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "close_backup_on_recovery: true, check: {interval: 100ms, fast_interval: 100ms, down_interval: 100ms, fall: 1, rise: 1}",
		rig.Member("a", a.Addr()), rig.Member("b", b.Addr(), "backup: true")))
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a to be down", func() bool { return p.Backend(t, "web", "a").State == "down" })
	if !p.Status(t).Pools[0].OnBackup {
		t.Error("the status does not tell of backups")
	}
	var list []*rig.Client
	for range 5 {
		c := rig.Dial(t, listen)
		if who := c.MustAsk(t); who != "b" {
			t.Fatal(who)
		}
		list = append(list, c)
	}
	if err := a.Revive(); err != nil {
		t.Fatal(err)
	}
	ends(t, list)
	if who, err := rig.Ask(listen); err != nil || who != "a" {
		t.Errorf("%q, %v", who, err)
	}
	for _, want := range []string{"backups are used", "a primary backend is eligible again"} {
		if !strings.Contains(p.Stderr(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
}

// With too few healthy ones all are used, and everybody can see that.
func TestPanic(t *testing.T) {
	t.Parallel()
	a := rig.Backend(t, "a", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, panic: 50, check: {interval: 100ms, fast_interval: 100ms, fall: 1}, passive: {failures: 0}",
		rig.Member("a", a.Addr()), rig.Member("b", rig.Addr(t)), rig.Member("c", rig.Addr(t))))
	rig.Eventually(t, "panic", func() bool { return p.Status(t).Pools[0].Panic })
	if served, failed := rig.AskTimes(listen, 10); served["a"] != 10 {
		t.Errorf("%v, %d failed", served, failed)
	}
	m := p.Metrics(t)
	if m[`poise_pool_panic{pool="web"}`] != 1 || m[`poise_pool_eligible_backends{pool="web"}`] != 3 || m.Sum("poise_retries_total") == 0 {
		t.Errorf("panic %v, eligible %v, retries %v", m[`poise_pool_panic{pool="web"}`], m[`poise_pool_eligible_backends{pool="web"}`], m.Sum("poise_retries_total"))
	}
	if !strings.Contains(p.Stderr(), "too few backends are healthy") {
		t.Error("the log does not tell")
	}
}

// When every backend is at max_connections, clients wait their turn, for a while,
// and not too many of them.
func TestQueue(t *testing.T) {
	t.Parallel()
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "max_connections: 1, queue: {size: 2, timeout: 3s}, check: {type: none}", rig.Member("db1", db.Addr())))
	first := rig.Dial(t, listen)
	first.MustAsk(t)
	waiting := func(n int) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("%d to wait", n), func() bool { return p.Status(t).Pools[0].Queue == n })
	}
	second := rig.Dial(t, listen)
	waiting(1)
	third := rig.Dial(t, listen)
	waiting(2)
	if n := p.Metrics(t)[`poise_pool_queue{pool="web"}`]; n != 2 {
		t.Errorf("%v wait", n)
	}
	if c, err := rig.TryDial(listen); err == nil { // else it is reset already
		t.Cleanup(func() { c.Close() })
		ends(t, []*rig.Client{c}) // no place left
	}
	first.Close()
	second.MustAsk(t) // first in, first out
	ends(t, []*rig.Client{third})
	second.MustAsk(t)
	second.Close()
	rig.Eventually(t, "the connections to end", func() bool { return p.Status(t).Connections == 0 })
	for _, want := range []string{"/queue_full ", "/queue_timeout ", " 0/1\n", " 0/2\n"} {
		rig.Eventually(t, want+" in the access log", func() bool { return strings.Contains(p.Stdout(), want) })
	}
	if _, err := rig.Ask(listen); err != nil {
		t.Error(err)
	}
}

// Two strategies side by side, in status and access log.
func TestCompareStrategies(t *testing.T) {
	t.Parallel()
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	p := rig.Start(t, "log: {access_format: json}\n"+rig.WebConfig(listen, "", "ab: {a: least-conn, b: round-robin, split: 0.7}, check: {type: none}",
		rig.Member("db1", db[0].Addr()), rig.Member("db2", db[1].Addr()), rig.Member("db3", db[2].Addr())))
	const n = 300
	if _, failed := rig.AskTimes(listen, n); failed != 0 {
		t.Fatalf("%d failed", failed)
	}
	list := p.Status(t).Pools[0].Strategies
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	a, b := list[0], list[1]
	if a.Balance != "least-conn" || b.Balance != "round-robin" || a.Sessions+b.Sessions != n || a.Share < 0.5 || a.Share > 0.9 {
		t.Errorf("%+v", list)
	}
	for _, s := range list {
		if s.Success != 1 || s.P50 <= 0 || s.P95 < s.P50 || s.P99 < s.P95 {
			t.Errorf("%+v", s)
		}
	}
	rig.Eventually(t, "the access log", func() bool { return strings.Count(p.Stdout(), `"outcome":"ok"`) == n })
	if got := strings.Count(p.Stdout(), `"strategy":"a"`); uint64(got) != a.Sessions {
		t.Errorf("%d lines of a, %d sessions", got, a.Sessions)
	}
}

// A host that dies without a word: its next check is far away, but several
// connections that get no acknowledgement are reason enough for a look.
func TestEarlyDeath(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan *net.TCPConn, 16)
	rig.ServeOn(t, l, func(c net.Conn, done <-chan struct{}) {
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return // a check
		}
		fmt.Fprintf(c, "a\n%s", line)
		arrived <- c.(*net.TCPConn)
		<-done
	})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "on_down: close, check: {interval: 10m, fast_interval: 10m, fall: 1}", rig.Member("a", l.Addr())))
	rig.Eventually(t, "the first check", func() bool { return p.Backend(t, "web", "a").Check.Probes > 0 })
	var list []*rig.Client
	for range 5 {
		c := rig.Dial(t, listen)
		c.MustAsk(t)
		list = append(list, c)
		deafen(t, <-arrived)
	}
	l.Close()
	for _, c := range list {
		if _, err := c.Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, "a to be down", func() bool { return p.Backend(t, "web", "a").State == "down" })
	if !strings.Contains(p.Stderr(), "have stalled together") {
		t.Error("found out in another way")
	}
}

// deafen makes the socket drop whatever comes, without an acknowledgement.
func deafen(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	}); err != nil || inner != nil {
		rig.Unavailable(t, fmt.Sprint("needs socket filters: ", err, inner))
	}
}
