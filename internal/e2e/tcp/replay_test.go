package tcp

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// failing starts a backend that reads so many bytes and then ends the connection
// without a word. It counts who came.
func failing(t testing.TB, reads int, end func(*net.TCPConn)) (addr string, came *atomic.Int64) {
	t.Helper()
	came = &atomic.Int64{}
	addr = rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		came.Add(1)
		_, _ = io.CopyN(io.Discard, c, int64(reads))
		end(c)
	})
	return addr, came
}

// digesting starts a backend that answers n bytes with their digest, and tells what it
// got; with header it expects a PROXY header first.
func digesting(t testing.TB, n int, header bool) (addr string, got <-chan rig.Visit) {
	t.Helper()
	ch := make(chan rig.Visit, 100)
	addr = rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		v, conn := rig.Visit{}, net.Conn(c)
		if header {
			if v.Header, conn, v.Err = rig.ReadHeader(c); v.Err != nil {
				ch <- v
				return
			}
		}
		b := make([]byte, n)
		m, err := io.ReadFull(conn, b)
		v.Data, v.Err = string(b[:m]), err
		ch <- v
		if err == nil {
			fmt.Fprintf(c, "%x", sha256.Sum256(b))
			_ = c.CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		}
	})
	return addr, ch
}

var silentEnds = map[string]func(*net.TCPConn){
	"reset": rig.Reset,
	"close": func(c *net.TCPConn) {
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	},
}

// A backend that ends a connection before its first byte is no client's concern: what
// the client has sent is sent to another one.
func TestReplay(t *testing.T) {
	t.Parallel()
	const size = 10_000
	request := bytes.Repeat([]byte("request "), size/8)
	want := fmt.Sprintf("%x", sha256.Sum256(request))
	for name, end := range silentEnds {
		for _, reads := range []int{0, 1, size} {
			t.Run(fmt.Sprintf("%s after %d", name, reads), func(t *testing.T) {
				t.Parallel()
				bad, came := failing(t, reads, end)
				worse, cameToo := failing(t, reads, end)
				good, got := digesting(t, size, true)
				listen := rig.Addr(t)
				p := rig.Start(t, "log: {access_format: json}\n"+rig.WebConfig(listen, "", "replay: 16k, send_proxy: v2, balance: first, passive: {failures: 0}, check: {type: none}",
					rig.Member("bad", bad), rig.Member("worse", worse), rig.Member("good", good)))
				const clients = 10
				for i := range clients {
					c := rig.Connect(t, listen)
					half := i * size / clients
					if _, err := c.Write(request[:half]); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
					if _, err := c.Write(request[half:]); err != nil {
						t.Fatal(err)
					}
					if name == "reset" && i%2 == 0 { // in order, both would have ended well
						if err := c.CloseWrite(); err != nil {
							t.Fatal(err)
						}
					}
					if r := rig.ReadToEnd(c); r.Got != want || r.Err != nil {
						t.Errorf("%d: %q, %v", i, r.Got, r.Err)
					}
					if v := rig.NextVisit(t, got); v.Data != string(request) || v.Source() != c.LocalAddr().String() {
						t.Errorf("%d: the backend got %d bytes from %s", i, len(v.Data), v.Source())
					}
					c.Close()
				}
				if came.Load() != clients || cameToo.Load() != clients {
					t.Errorf("%d and %d came to the others", came.Load(), cameToo.Load())
				}
				p.WantOutcomes(t, "ok", clients)
				p.WantLogged(t, `"backend":"good"`, `"retries":2`, fmt.Sprintf(`"bytes_in":%d,"bytes_out":64,`, size))
				if n := p.Metrics(t)[`poise_retries_total{service="web"}`]; n != 2*clients {
					t.Errorf("%v retries are counted", n)
				}
			})
		}
	}
}

// A backend that ends in order when its client has, and had nothing to say, has done
// what it was asked.
func TestReplayWellDone(t *testing.T) {
	t.Parallel()
	first, visits := failing(t, 1<<20, func(c *net.TCPConn) { c.Close() }) // at the client's end
	second, others := failing(t, 0, rig.Reset)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "replay: 16k, balance: first, check: {type: none}", rig.Member("first", first), rig.Member("second", second)))
	if r := rig.Say(t, rig.Connect(t, listen), 0, "a line for the log\n"); r.Got != "" || r.Err != nil {
		t.Errorf("%q, %v", r.Got, r.Err)
	}
	p.WantOutcomes(t, "ok", 1)
	if visits.Load() != 1 || others.Load() != 0 {
		t.Errorf("%d and %d backends were asked", visits.Load(), others.Load())
	}
}

// What cannot be replayed ends as it did: without replay, when the client has sent too
// much, when the backend has said something, when retries are used up.
func TestReplayNot(t *testing.T) {
	t.Parallel()
	const size = 30_000
	for name, c := range map[string]struct {
		service, pool string
		sends         int
		says          string
		bad           int64 // how many backends fail a client
	}{
		"off":       {"", "replay: 0, ", 100, "", 1},
		"too much":  {"", "", size, "", 1},
		"a word":    {"", "", 100, "x", 1},
		"no retry":  {"retries: 0", "", 100, "", 1},
		"one retry": {"retries: 1", "", 100, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := func(conn *net.TCPConn) {
				_, _ = io.WriteString(conn, c.says)
				rig.Reset(conn)
			}
			one, cameOne := failing(t, c.sends, end)
			two, cameTwo := failing(t, c.sends, end)
			three, cameThree := failing(t, c.sends, end)
			listen := rig.Addr(t)
			p := rig.Start(t, "defaults: {pools: {replay: 16k}}\n"+rig.WebConfig(listen, c.service, c.pool+"balance: first, passive: {failures: 0}, check: {type: none}",
				rig.Member("one", one), rig.Member("two", two), rig.Member("three", three)))
			conn := rig.Connect(t, listen)
			if _, err := conn.Write(make([]byte, c.sends)); err != nil {
				t.Fatal(err)
			}
			if r := rig.ReadToEnd(conn); r.Got != c.says || !r.Reset() {
				t.Errorf("%q, %v", r.Got, r.Err)
			}
			p.WantOutcomes(t, "backend_reset", 1)
			if n := cameOne.Load() + cameTwo.Load() + cameThree.Load(); n != c.bad {
				t.Errorf("%d backends were asked, want %d", n, c.bad)
			}
		})
	}
}

// It works with TLS on either side, where what is kept is what is in it.
func TestReplayTLS(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	bad, came := failing(t, 3000, rig.Reset)
	good, got := digesting(t, 3000, false)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, ca.Issue(t, "db.test").ServiceTLS(), "replay: 16k, balance: first, passive: {failures: 0}, check: {type: none}",
		rig.Member("bad", bad), rig.Member("good", good)))
	request := strings.Repeat("abc", 1000)
	for range 10 {
		c := rig.MustDialTLS(t, listen, ca.ClientConfig("db.test"))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if r := rig.ReadToEnd(c); r.Got != fmt.Sprintf("%x", sha256.Sum256([]byte(request))) || r.Err != nil {
			t.Errorf("%q, %v", r.Got, r.Err)
		}
		if v := rig.NextVisit(t, got); v.Data != request {
			t.Errorf("the backend got %d bytes", len(v.Data))
		}
		c.Close()
	}
	if came.Load() != 10 {
		t.Errorf("%d came to the other", came.Load())
	}
	p.WantOutcomes(t, "ok", 10)
}

// A ClientHello that chooses the pool is sent again as well.
func TestReplaySNI(t *testing.T) {
	t.Parallel()
	listen := rig.Addr(t)
	bad, came := failing(t, 100, rig.Reset)
	rig.Start(t, fmt.Sprintf(`
services:
  web: {listen: [%q], sni: {a.test: web}}
pools:
  web: {replay: 16k, balance: first, passive: {failures: 0}, check: {type: none}, backends: [%s, %s]}
`, listen, rig.Member("bad", bad), rig.Member("good", rig.StartNamed(t, "good"))))
	for range 10 {
		if who := rig.Reaches(t, listen, rig.HelloFor(t, "a.test")); who != "good" {
			t.Errorf("served by %q", who)
		}
	}
	if came.Load() != 10 {
		t.Errorf("%d came to the other", came.Load())
	}
}
