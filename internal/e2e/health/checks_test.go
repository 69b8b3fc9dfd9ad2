package health

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// answering serves every request of a health check with what answer writes.
func answering(t *testing.T, answer func(c *net.TCPConn)) (address string) {
	return rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		if err := readRequest(c); err != nil {
			return
		}
		answer(c)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
}

// readRequest reads to the empty line that ends a request without a body.
func readRequest(c net.Conn) error {
	var got []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(got), "\r\n\r\n"); {
		if _, err := c.Read(one); err != nil {
			return err
		}
		got = append(got, one[0])
	}
	return nil
}

// Case O-12: answers to HTTP checks that come in pieces, too slowly, wrong, or
// without saying how long they are.
func TestHTTPCheckAnswers(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	// (c) 3000 bytes, 50 every 200 ms, would take 12 s: each piece is in time, the
	// whole is not.
	trickle := answering(t, func(c *net.TCPConn) {
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + strings.Repeat("x", 3000)
		for ; len(answer) > 0; time.Sleep(200 * time.Millisecond) {
			n := min(50, len(answer))
			if _, err := io.WriteString(c, answer[:n]); err != nil {
				return
			}
			answer = answer[n:]
		}
	})
	// (e) 404 with a body of 40 000 bytes, and later 200.
	var well atomic.Bool
	page := strings.Repeat("x", 40_000)
	wrong := answering(t, func(c *net.TCPConn) {
		status := "404 Not Found"
		if well.Load() {
			status = "200 OK"
		}
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(page), page)
	})
	// (f) 200 without Content-Length that closes at the end.
	endless := answering(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n"+page)
	})
	p := rig.Start(t, rig.WebConfig(rig.Addr(t), "", "balance: round-robin, check: {type: http, timeout: "+limit.String()+
		", interval: 50ms, fast_interval: 50ms, down_interval: 50ms, fall: 1, rise: 2}",
		rig.Member("trickle", trickle), rig.Member("wrong", wrong), rig.Member("endless", endless)))

	probes := func(name string) uint64 { return p.Backend(t, "web", name).Check.Probes }
	rig.Eventually(t, "20 checks each, and a slow one", func() bool {
		return probes("wrong") >= 20 && probes("endless") >= 20 && probes("trickle") >= 1
	})
	descriptors := p.Descriptors(t)
	b := p.Backend(t, "web", "trickle")
	if b.State != "down" || !strings.HasPrefix(b.Reason, "L7TOUT") {
		t.Errorf("trickle: %+v %+v", b, b.Check)
	}
	// About as long as the limit, that is neither as soon as it can be known nor
	// the 12 s.
	if took := b.Check.Took; took < 0.9*limit.Seconds() || took > 5*limit.Seconds() {
		t.Errorf("a slow answer was waited for %v s", took)
	}
	if b := p.Backend(t, "web", "wrong"); b.State != "down" || !strings.HasPrefix(b.Reason, "L7STS") {
		t.Errorf("wrong: %+v %+v", b, b.Check)
	}
	if b := p.Backend(t, "web", "endless"); b.State != "up" || !b.Check.Up || p.Metrics(t).Sum("poise_backend_check_failures_total", `backend="endless"`) != 0 {
		t.Errorf("endless: %+v %+v", b, b.Check)
	}

	well.Store(true)
	rig.Eventually(t, "wrong to be up", func() bool { return p.Backend(t, "web", "wrong").State == "up" })
	rig.Eventually(t, "100 checks", func() bool { return probes("wrong") >= 100 && probes("endless") >= 100 })
	// Up to one for each probe under way, and one for the scrape.
	if n := p.Descriptors(t); n > descriptors+4 {
		t.Errorf("%d descriptors, %d before", n, descriptors)
	}
}

// Case O-13: a server that greets first, counts connections that are reset, and
// after ten of them has nothing more to do with the address. A TCP check has to
// end its connections in order, for the sake of the clients.
func TestCheckOfGreetingServer(t *testing.T) {
	t.Parallel()
	const greeting = "5.5.5-10.4.12-MariaDB, a greeting that is as long as those of some databases.."
	const patienceWithOne, resetsToBlock = 2 * time.Second, 10
	var open, most, resets, ends atomic.Int64 // of connections that say nothing, as probes do
	address := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		if resets.Load() >= resetsToBlock {
			return
		}
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		_, err := io.WriteString(c, greeting)
		if err == nil {
			_ = c.SetReadDeadline(time.Now().Add(patienceWithOne))
			_, err = c.Read(make([]byte, 1))
		}
		open.Add(-1)
		switch err {
		case nil: // a client
			_, _ = io.WriteString(c, "!")
			_, _ = io.Copy(io.Discard, c)
		case io.EOF:
			ends.Add(1)
		default:
			resets.Add(1)
			t.Errorf("a probe ended with %v", err)
		}
	})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: tcp, interval: 50ms, fast_interval: 50ms}", rig.Member("db1", address)))
	p.Metrics(t)
	descriptors := p.Descriptors(t)

	const clients = 40
	for range clients {
		c := rig.Connect(t, listen)
		if _, err := io.WriteString(c, "?"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(greeting)+1)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != greeting+"!" {
			t.Errorf("a client was greeted %q, %v", got, err)
		}
		c.Close()
		time.Sleep(50 * time.Millisecond)
	}
	b := p.Backend(t, "web", "db1")
	if b.State != "up" || b.Check.Probes < 20 {
		t.Errorf("%+v %+v", b, b.Check)
	}
	if n := p.Metrics(t).Sum("poise_backend_check_failures_total"); n != 0 {
		t.Errorf("%v checks failed", n)
	}
	if r, e := resets.Load(), ends.Load(); r != 0 || e < 20 {
		t.Errorf("%d resets, %d orderly ends", r, e)
	}
	// A probe, a client, and on a busy machine one that has ended unnoticed yet.
	if n := most.Load(); n > 4 {
		t.Errorf("%d silent connections at a time", n)
	}
	rig.Eventually(t, "descriptors to be as before", func() bool { return p.Descriptors(t) <= descriptors+2 })
}
