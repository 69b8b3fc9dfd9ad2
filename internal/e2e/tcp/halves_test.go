package tcp

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Case O-01: the client has finished sending, the answer comes late, and arrives.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			const pause = 1500 * time.Millisecond
			answer := bytes.Repeat([]byte("R"), 204_800)
			place := "127.0.0.1:0"
			if network == "unix" {
				place = filepath.Join(t.TempDir(), "s")
			}
			l, err := net.Listen(network, place)
			if err != nil {
				t.Fatal(err)
			}
			requests, ends := make(chan string, 1), make(chan time.Time, 1)
			rig.ServeOn(t, l, func(c net.Conn, _ <-chan struct{}) {
				request, _ := io.ReadAll(c)
				ends <- time.Now()
				requests <- string(request)
				time.Sleep(pause)
				_, _ = c.Write(answer)
			})
			address := l.Addr().String()
			if network == "unix" {
				address = "unix:" + address
			}
			listen := rig.Addr(t)
			p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}", rig.Member("db1", address)))

			began := time.Now()
			c := rig.Connect(t, listen)
			if _, err := io.WriteString(c, "PING\n"); err != nil {
				t.Fatal(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			sent := time.Now()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, answer) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if took := time.Since(began); took < pause {
				t.Errorf("it took %v", took)
			}
			if request := <-requests; request != "PING\n" {
				t.Errorf("the request was %q", request)
			}
			// Long before the client's socket is gone; on a calm machine within 1 ms.
			if late := (<-ends).Sub(sent); late > pause/2 {
				t.Errorf("the client's end was passed on after %v", late)
			}
			rig.Eventually(t, "the flow to be gone", func() bool { return len(rig.Sockets(t, listen)) == 0 })
			rig.Eventually(t, "the outcome", func() bool { return strings.Contains(p.Stdout(), "/ok ") })
		})
	}
}

// Case O-01 (b): the backend has finished sending, and the client uploads.
func TestLateUpload(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	received := make(chan int64, 1)
	address := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		_, _ = io.WriteString(c, "0123456789")
		_ = c.CloseWrite()
		n, _ := io.Copy(io.Discard, c)
		received <- n
	})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}", rig.Member("db1", address)))
	c := rig.Connect(t, listen)
	if got, err := io.ReadAll(c); string(got) != "0123456789" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n := <-received; n != size {
		t.Errorf("%d bytes arrived", n)
	}
	rig.Eventually(t, "the flow to be gone", func() bool { return len(rig.Sockets(t, listen, address)) == 0 })
	rig.Eventually(t, "the outcome", func() bool { return strings.Contains(p.Stdout(), "/ok ") })
}

// Case O-02: clients give up on a backend that takes connections and does
// nothing. What they leave is cleared away.
func TestSilentBackendAfterEnd(t *testing.T) {
	t.Parallel()
	address := rig.Serve(t, func(_ *net.TCPConn, done <-chan struct{}) { <-done })
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "timeouts: {half_close: 2s}", "balance: round-robin, check: {type: none}", rig.Member("db1", address)))
	p.Metrics(t) // so that what it takes is among the descriptors before
	before := p.Descriptors(t)

	const clients = 200
	held := make([]*net.TCPConn, clients)
	for i := range held {
		held[i] = rig.Connect(t, listen)
		if _, err := io.WriteString(held[i], "0123456789"); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, "the backend to have all of them", func() bool { return p.Backend(t, "web", "db1").Connections == clients })
	for _, c := range held {
		c.Close()
	}
	// Sockets and pipes alike.
	rig.Eventually(t, "descriptors to be as before", func() bool { return p.Descriptors(t) <= before+5 })
	rig.Eventually(t, "the connections to have ended", func() bool {
		return p.Metrics(t)[`poise_sessions_total{outcome="half_close_timeout",service="web"}`] == clients
	})
	var left []string
	for end := time.Now().Add(rig.Patience); ; time.Sleep(50 * time.Millisecond) {
		if left = rig.Sockets(t, listen, address); len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("the kernel still has %d of its sockets, the first: %s", len(left), left[0])
	}
}

// Case O-02 (b): it is no progress that ends it, not the time.
func TestSlowAnswerAfterEnd(t *testing.T) {
	t.Parallel()
	const chunks, size, every, limit = 20, 1000, 300 * time.Millisecond, 3 * time.Second
	address := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		_, _ = io.Copy(io.Discard, c)
		for range chunks {
			time.Sleep(every)
			if _, err := c.Write(make([]byte, size)); err != nil {
				return
			}
		}
	})
	listen := rig.Addr(t)
	rig.Start(t, rig.WebConfig(listen, "timeouts: {half_close: "+limit.String()+"}", "balance: round-robin, check: {type: none}", rig.Member("db1", address)))
	c := rig.Connect(t, listen)
	began := time.Now()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if len(got) != chunks*size || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if took := time.Since(began); took < limit {
		t.Errorf("it took %v, which shows nothing", took)
	}
}

// Case O-03: a reset on one side is one on the other, after the bytes before it,
// and an orderly end is none.
func TestResetsPassThrough(t *testing.T) {
	const text = "12345"
	for name, c := range map[string]struct {
		end   func(*net.TCPConn) // ends the connection when the text has been sent
		reset bool
	}{
		"reset": {rig.Reset, true},
		"close": {func(c *net.TCPConn) { c.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(who string, r rig.Reading) {
				t.Helper()
				if r.Got != text || r.Reset() != c.reset || !c.reset && r.Err != nil {
					t.Errorf("%s got %q, then %v", who, r.Got, r.Err)
				}
			}
			// The one that ends it does so when it knows that the other is there.
			byBackend := rig.Serve(t, func(conn *net.TCPConn, _ <-chan struct{}) {
				if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
					_, _ = io.WriteString(conn, text)
					c.end(conn)
				}
			})
			seen := make(chan rig.Reading, 1)
			byClient := rig.Serve(t, func(conn *net.TCPConn, _ <-chan struct{}) {
				_, _ = io.WriteString(conn, "?")
				seen <- rig.ReadToEnd(conn)
			})
			one, two := rig.Addr(t), rig.Addr(t)
			p := rig.Start(t, rig.TwoServices(one, two, "", byBackend, byClient))
			const rounds = 50
			for range rounds {
				client := rig.Connect(t, one)
				if _, err := io.WriteString(client, "?"); err != nil {
					t.Fatal(err)
				}
				check("the client", rig.ReadToEnd(client))
				client.Close()

				client = rig.Connect(t, two)
				if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(client, text); err != nil {
					t.Fatal(err)
				}
				c.end(client)
				check("the backend", <-seen)
			}
			outcomes := []string{`outcome="ok",service="one"`, `outcome="ok",service="two"`}
			if c.reset {
				outcomes = []string{`outcome="backend_reset",service="one"`, `outcome="client_reset",service="two"`}
			}
			for _, o := range outcomes {
				rig.Eventually(t, o, func() bool { return p.Metrics(t)["poise_sessions_total{"+o+"}"] == rounds })
			}
		})
	}
}

// Case O-03: so it is with a client that resets right after it has connected, when
// the balancer is about to connect or just has. The backend may have got nothing
// by then, but it is not told that this was all.
func TestEarlyReset(t *testing.T) {
	const text, rounds = "12345", 300
	var seen atomic.Int64
	address := rig.Serve(t, func(conn *net.TCPConn, _ <-chan struct{}) {
		r := rig.ReadToEnd(conn)
		if r.Got != "" && r.Got != text || !r.Reset() {
			t.Errorf("the backend got %q, then %v", r.Got, r.Err)
		}
		seen.Add(1)
	})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: first, check: {type: none}", rig.Member("db1", address)))
	for range rounds {
		client := rig.Connect(t, listen)
		if _, err := io.WriteString(client, text); err != nil {
			t.Fatal(err)
		}
		rig.Reset(client)
	}
	rig.Eventually(t, "the connections to end", func() bool { return p.Metrics(t).Sum("poise_sessions_total") == rounds })
	rig.Eventually(t, "the backend's to end", func() bool { return len(rig.Sockets(t, listen, address)) == 0 })
	t.Logf("the backend saw %d of %d", seen.Load(), rounds)
}
