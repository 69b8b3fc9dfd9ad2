package reload

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-08: connections that are open count after a reload as before it.
func TestReloadKeepsLoad(t *testing.T) {
	db := [3]*loadgen.Backend{}
	for i := range db {
		db[i] = rig.Backend(t, fmt.Sprintf("db%d", i+1), loadgen.Behaviour{})
	}
	listen := rig.Addr(t)
	yaml := rig.OneService(listen, "least-conn", db[:]...)
	p := rig.Start(t, yaml)

	served := map[string]int{}
	for range 30 {
		served[rig.Dial(t, listen).MustAsk(t)]++
	}
	for name, n := range served {
		if n != 10 || len(served) != 3 {
			t.Fatalf("%s has %d of 30: %v", name, n, served)
		}
	}
	for range 10 {
		if changes := p.MustReload(t, yaml); len(changes) != 0 {
			t.Errorf("the same configuration changed %v", changes)
		}
		served[rig.Dial(t, listen).MustAsk(t)]++
	}
	for name, n := range served {
		if n < 12 || n > 15 {
			t.Errorf("%s has %d of 40: %v", name, n, served)
		}
	}
}

// Case O-08: a round robin goes on where it was.
func TestReloadKeepsTurn(t *testing.T) {
	db1, db2, db3 := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Backend(t, "db2", loadgen.Behaviour{}), rig.Backend(t, "db3", loadgen.Behaviour{})
	listen := rig.Addr(t)
	yaml := rig.OneService(listen, "round-robin", db1, db2, db3)
	p := rig.Start(t, yaml)
	served := map[string]int{}
	for i := range 60 {
		// Another order each time: nothing but the pool itself can remember the turn.
		if i%2 == 0 {
			p.MustReload(t, yaml)
		} else {
			p.MustReload(t, rig.OneService(listen, "round-robin", db3, db2, db1))
		}
		name, err := rig.Ask(listen)
		if err != nil {
			t.Fatal(err)
		}
		served[name]++
	}
	for name, n := range served {
		if n > 30 || len(served) != 3 {
			t.Errorf("%s has %d of 60: %v", name, n, served)
		}
	}
}

// Case O-31: no connection notices a reload, whatever it changes.
func TestReloadUnderLoad(t *testing.T) {
	db1, db2, db3 := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Backend(t, "db2", loadgen.Behaviour{}), rig.Backend(t, "db3", loadgen.Behaviour{})
	listen, extra := rig.Addr(t), rig.Addr(t)
	service := fmt.Sprintf("services:\n  web: {listen: [%q], pool: %%s}\n", listen)
	web := fmt.Sprintf(service, "web")
	variants := []string{
		web + "pools:\n" + rig.OnePool("web", "least-conn", "", db1, db2),
		web + "pools:\n" + rig.OnePool("web", "least-conn", "", db1, db2, db3),
		web + "pools:\n" + rig.OnePool("web", "round-robin", "    check: {type: none}\n", db3, db1),
		web + "  extra: {listen: [\"" + extra + "\"], pool: web}\npools:\n" + rig.OnePool("web", "p2c", "", db1, db2),
		// The pool that everything goes to is replaced by another one.
		fmt.Sprintf(service, "other") + "pools:\n" + rig.OnePool("other", "least-conn", "", db2, db3),
		// The listener that everything comes from belongs to another service.
		strings.Replace(web, "web:", "renamed:", 1) + "pools:\n" + rig.OnePool("web", "random", "", db1, db3),
	}
	p := rig.Start(t, variants[0])

	clients := rig.Repeat(t, 4, 5*time.Millisecond, func() error { return exchange(listen) })
	for i := range 20 {
		p.MustReload(t, variants[(i+1)%len(variants)])
		time.Sleep(100 * time.Millisecond)
	}
	made := clients.Stop()
	if made < 200 {
		t.Errorf("only %d connections", made)
	}
	t.Logf("%d connections", made)
}

// exchange makes a short connection that sends 1 kB and gets it back. A segment
// that had to be sent again counts as an error: on loopback one is only lost where
// a socket with a client in its queue was closed, or none was listening.
func exchange(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, rig.Patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.Total_retrans > 0 {
			_ = conn.SetDeadline(time.Unix(1, 0)) // fails what follows
		}
	})
	if err != nil {
		return err
	}
	line := append(bytes.Repeat([]byte("x"), 1023), '\n')
	if _, err := conn.Write(line); err != nil {
		return err
	}
	answer := make([]byte, len("db1\n")+len(line))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if !bytes.Equal(answer[len("db1\n"):], line) {
		return fmt.Errorf("got %q back", answer)
	}
	return nil
}

// Case O-32: nothing is left of the configurations that were.
func TestReloadLeavesNothing(t *testing.T) {
	db1, db2 := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Backend(t, "db2", loadgen.Behaviour{})
	side := rig.Backend(t, "side", loadgen.Behaviour{})
	listen, extra := rig.Addr(t), rig.Addr(t)
	const checks = "    check: {type: tcp, interval: 500ms, fast_interval: 500ms}\n"
	one := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen, rig.OnePool("web", "least-conn", checks, db1, db2))
	two := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\n  extra: {listen: [%q], pool: side}\npools:\n%s%s",
		listen, extra, rig.OnePool("web", "least-conn", checks, db1, db2), rig.OnePool("side", "random", checks, side))
	p := rig.Start(t, one)

	var held []*rig.Client
	for range 5 {
		held = append(held, rig.Dial(t, listen))
		held[len(held)-1].MustAsk(t)
	}
	// Once around, so that what is made on first use is there.
	p.MustReload(t, two)
	p.MustReload(t, one)
	settle(t, p)
	fds, goroutines, rss := p.Descriptors(t), p.Metrics(t)["go_goroutines"], p.Resident(t)

	probes, began := p.Backend(t, "web", "db1").Check.Probes, time.Now()
	for i := range 50 {
		if i%2 == 0 {
			p.MustReload(t, two)
		} else {
			p.MustReload(t, one)
		}
		time.Sleep(100 * time.Millisecond)
	}
	// Two a second are due, give or take the jitter.
	made, due := p.Backend(t, "web", "db1").Check.Probes-probes, time.Since(began)/(500*time.Millisecond)
	if float64(made) > 1.2*float64(due)+2 || made < 2 {
		t.Errorf("%d probes, %d were due", made, due)
	}

	settle(t, p)
	rig.Eventually(t, "descriptors to be as before", func() bool {
		n := p.Descriptors(t)
		return n >= fds-3 && n <= fds+3
	})
	rig.Eventually(t, "goroutines to be as before", func() bool { return p.Metrics(t)["go_goroutines"] <= goroutines })
	if now := p.Resident(t); now > rss+10<<20 {
		t.Errorf("resident memory grew from %d to %d", rss, now)
	}
	if _, err := net.Dial("tcp", extra); err == nil {
		t.Error("the removed listener still accepts")
	}
	if n := len(p.Status(t).Pools); n != 1 {
		t.Errorf("%d pools", n)
	}
	for _, c := range held {
		c.MustAsk(t)
	}
}

// settle waits until the removed pool is gone.
func settle(t *testing.T, p *rig.Proc) {
	t.Helper()
	rig.Eventually(t, "the removed pool to go", func() bool { return len(p.Status(t).Pools) == 1 })
}
