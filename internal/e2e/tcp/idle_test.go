package tcp

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Case O-05 (a): the idle limit ends both sides, and says so.
func TestIdleEnds(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	ended := make(chan time.Time, 1)
	address := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		buf := make([]byte, 4)
		if _, err := io.ReadFull(c, buf); err == nil {
			_, _ = c.Write(buf)
		}
		_, _ = c.Read(buf)
		ended <- time.Now()
	})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "timeouts: {idle: "+limit.String()+"}", "balance: round-robin, check: {type: none}", rig.Member("db1", address)))
	c := rig.Connect(t, listen)
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	quiet := time.Now()
	if n, err := c.Read(buf); err == nil {
		t.Fatalf("%d bytes", n)
	}
	client, backend := time.Since(quiet), (<-ended).Sub(quiet)
	// The last byte left the process a moment before the client had it.
	if least := limit - limit/10; client < least || backend < least {
		t.Errorf("the client saw the end after %v, the backend after %v", client, backend)
	}
	if late := (client - backend).Abs(); late > rig.Patience/2 {
		t.Errorf("%v apart", late)
	}
	rig.Eventually(t, "the outcome", func() bool {
		return strings.Contains(p.Stdout(), "/idle ") && p.Metrics(t)[`poise_sessions_total{outcome="idle",service="web"}`] == 1
	})
	c.Close()
	rig.Eventually(t, "the flow to be gone", func() bool { return len(rig.Sockets(t, listen, address)) == 0 })
}

// Case O-05 (b): bytes in one direction alone are activity.
func TestIdleCountsEitherDirection(t *testing.T) {
	t.Parallel()
	const bytes, every, limit = 20, 300 * time.Millisecond, 2 * time.Second
	drip := func(c net.Conn) {
		for range bytes {
			time.Sleep(every)
			if _, err := io.WriteString(c, "."); err != nil {
				return
			}
		}
	}
	received := make(chan int64, 1)
	down := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) { drip(c) })
	up := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		n, _ := io.Copy(io.Discard, c)
		received <- n
	})
	one, two := rig.Addr(t), rig.Addr(t)
	rig.Start(t, rig.TwoServices(one, two, "timeouts: {idle: "+limit.String()+"}", down, up))
	silent, talking := rig.Connect(t, one), rig.Connect(t, two)
	dripped := make(chan struct{})
	go func() {
		defer close(dripped)
		drip(talking)
		_ = talking.CloseWrite()
	}()
	if got, err := io.ReadAll(silent); len(got) != bytes || err != nil {
		t.Errorf("a silent client got %d bytes, %v", len(got), err)
	}
	<-dripped
	if n := <-received; n != bytes {
		t.Errorf("a silent backend got %d bytes", n)
	}
}
