package reload

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-49: the process is stopped for longer than any of its deadlines, at random
// moments. No check fails for it, no connection is cut, and what came meanwhile is
// served: of those that are open, of new ones, and of one in the middle of its header.
func TestStopped(t *testing.T) {
	t.Parallel()
	web := rig.Backend(t, "web", loadgen.Behaviour{})
	// Two answers after 100 ms each: a check that is stopped on the way has still to ask.
	_, port, _ := net.SplitHostPort(rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		time.Sleep(100 * time.Millisecond)
		_, _ = io.WriteString(c, "hello")
		if _, err := io.ReadFull(c, make([]byte, 5)); err == nil {
			time.Sleep(100 * time.Millisecond)
			_, _ = io.WriteString(c, "fine")
		}
	}))

	listen, proxied := rig.Addr(t), rig.Addr(t)
	p := rig.Start(t, fmt.Sprintf(`
services:
  web: {listen: [%q], pool: web, timeouts: {idle: 10s, connect: 1s, connect_total: 2s}}
  proxied: {listen: [%q], pool: web, timeouts: {first_bytes: 2s}, proxy_protocol: {accept: v1, trusted: ["127.0.0.0/8"]}}
pools:
  web:
    on_down: close
    check: {type: expect, port: %s, interval: 250ms, timeout: 3s, rise: 1, fall: 1, expect: [{expect: hello}, {send: "well?"}, {expect: fine}]}
    backends: [%s]
`, listen, proxied, port, rig.Member("web", web.Addr())))
	var open []*rig.Client
	for range 20 {
		c := rig.Dial(t, listen)
		c.MustAsk(t)
		open = append(open, c)
	}
	for range 3 {
		time.Sleep(time.Duration(rand.Int64N(int64(250 * time.Millisecond))))
		half := rig.Connect(t, proxied)
		if _, err := half.Write([]byte("PROXY TCP4 192.0.2.1 192")); err != nil {
			t.Fatal(err)
		}
		p.Signal(syscall.SIGSTOP)
		answers := make(chan error, 1)
		go func() { // in the middle of the pause
			_, err := rig.Ask(listen)
			answers <- err
		}()
		if _, err := half.Write([]byte(".0.2.2 1 2\r\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3300 * time.Millisecond) // longer than the check, the connect and the header may take
		p.Signal(syscall.SIGCONT)
		if err := <-answers; err != nil {
			t.Errorf("a client that came in the pause: %v", err)
		}
		(&rig.Client{Conn: half, Reader: bufio.NewReader(half)}).MustAsk(t)
		half.Close()
		for _, c := range open {
			c.MustAsk(t)
		}
	}
	if log := p.Stderr(); strings.Contains(log, "backend is down") {
		t.Error("a check has failed")
	}
}
