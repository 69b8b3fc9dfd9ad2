package health

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

const (
	mqttConnect = "\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02id"
	tlsHello    = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	getRequest  = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
)

var mqttAccepted = []byte{0x20, 2, 0, 0}

// wantNoneEjected: every backend of the pool web is up, and has been.
func wantNoneEjected(t *testing.T, p *rig.Proc, after string) {
	t.Helper()
	for _, b := range p.Status(t).Pools[0].Backends {
		if b.State != "up" {
			t.Errorf("after %s: %s is %s (%s)", after, b.Name, b.State, b.Reason)
		}
	}
	if n := p.Metrics(t).Sum("poise_backend_ejections_total"); n != 0 {
		t.Errorf("after %s: %v ejections", after, n)
	}
}

// Case O-46: strangers talk nonsense to two real brokers, with all defaults. They stay
// in rotation, and good clients are spread over both.
func TestStrangersBroker(t *testing.T) {
	t.Parallel()
	broker := rig.Program(t, "mosquitto")
	dir, listen := rig.OpenDir(t), rig.Addr(t)
	var members []string
	for i := range 2 {
		at := rig.Addr(t)
		host, port, _ := net.SplitHostPort(at)
		config := filepath.Join(dir, fmt.Sprintf("%d.conf", i))
		if err := os.WriteFile(config, fmt.Appendf(nil, "listener %s %s\nallow_anonymous true\n", port, host), 0o644); err != nil {
			t.Fatal(err)
		}
		rig.StartServer(t, exec.Command(broker, "-c", config), syscall.SIGTERM, rig.Accepting(at))
		members = append(members, rig.Member(fmt.Sprint("broker", i), at))
	}
	p := rig.Start(t, rig.WebConfig(listen, "", "", members...))
	good := func(after string) {
		t.Helper()
		before := p.Status(t).Pools[0].Backends
		for range 10 {
			if got := rig.SayFrom(t, "127.0.0.1", listen, mqttConnect, 4); !bytes.Equal(got, mqttAccepted) {
				t.Errorf("after %s: a good client got %x", after, got)
			}
		}
		for i, b := range p.Status(t).Pools[0].Backends {
			if n := b.Total - before[i].Total; n < 2 {
				t.Errorf("after %s: %s had %d of 10 clients", after, b.Name, n)
			}
		}
		wantNoneEjected(t, p, after)
	}
	publish := publisher(t, listen)
	good("nothing")
	for _, nonsense := range []string{getRequest, tlsHello, "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + mqttConnect} {
		for range 30 {
			rig.SayFrom(t, "127.0.0.1", listen, nonsense, 100)
			publish()
		}
		good(fmt.Sprintf("%.10q", nonsense))
	}
}

// publisher is a client that stays and publishes: each call sends one message and waits
// until the broker has it.
func publisher(t *testing.T, at string) (publish func()) {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	exchange := func(say string, want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		_ = c.SetDeadline(time.Now().Add(rig.Patience))
		if _, err := io.WriteString(c, say); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the publisher said %q and got %x, %v", say, got, err)
		}
	}
	exchange(strings.Replace(mqttConnect, "id", "pu", 1), mqttAccepted)
	id := byte(0)
	return func() {
		t.Helper()
		id++
		exchange("\x32\x06\x00\x01t\x00"+string([]byte{id})+"m", []byte{0x40, 2, 0, id}) // QoS 1
	}
}

// picky is a backend that answers clients that begin with "good" and throws away anything
// else after four bytes, with the rest unread: the kernel makes a reset of that.
func picky(t *testing.T, name string, mood *atomic.Int32) string {
	return rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		b := make([]byte, 4)
		if _, err := io.ReadFull(c, b); err != nil {
			return // a check
		}
		if mood.Load() == wrecked {
			rig.Reset(c)
		} else if string(b) == "good" {
			_, _ = io.WriteString(c, name)
		}
	})
}

const wrecked = 1

// Case O-46 with a scripted server, and its control: one that resets every client is
// ejected, once clients from several addresses have met nothing else. No client's trial
// makes the next ejection longer, and the backend is back when it answers again.
func TestStrangersScripted(t *testing.T) {
	t.Parallel()
	var moodA, moodB atomic.Int32
	a, b := picky(t, "a", &moodA), picky(t, "b", &moodB)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, passive: {base: 300ms, max: 1m}", rig.Member("a", a), rig.Member("b", b)))
	for range 60 {
		rig.SayFrom(t, "127.0.0.1", listen, getRequest, 1)
	}
	wantNoneEjected(t, p, "nonsense of one stranger")
	for i := range 60 { // of many, but others are served
		rig.SayFrom(t, fmt.Sprintf("127.0.1.%d", i+1), listen, getRequest, 1)
		rig.SayFrom(t, fmt.Sprintf("127.0.1.%d", i+1), listen, getRequest, 1)
		for range 2 {
			if got := rig.SayFrom(t, "127.0.0.1", listen, "good", 1); len(got) != 1 {
				t.Fatalf("a good client got %q", got)
			}
		}
	}
	wantNoneEjected(t, p, "nonsense of many strangers among good clients")

	moodA.Store(wrecked)
	n := 0
	client := func() string {
		n++
		return string(rig.SayFrom(t, fmt.Sprintf("127.0.0.%d", n%7+1), listen, "good", 1))
	}
	ejected := func() float64 { return p.Metrics(t).Sum("poise_backend_ejections_total", `backend="a"`) }
	rig.Eventually(t, "a to be ejected", func() bool { client(); return ejected() == 1 })
	if n > 24 { // 5 of them met it, and round robin gives it every second one
		t.Errorf("it took %d clients", n)
	}
	rig.Eventually(t, "its trials to fail, four times", func() bool { client(); return ejected() >= 5 })
	for line := range strings.Lines(p.Stderr()) {
		if strings.Contains(line, "backend is ejected") && !strings.Contains(line, "for 300ms") {
			t.Errorf("an ejection was longer: %s", line)
		}
	}
	moodA.Store(0)
	rig.Eventually(t, "a to be back", func() bool { return client() == "a" && p.Backend(t, "web", "a").State == "up" })
	if got := p.Backend(t, "web", "b"); got.State != "up" {
		t.Errorf("%+v", got)
	}
}

// A backend that resets every connection before anything was said is found out with
// the help of a single client.
func TestResetAtOnce(t *testing.T) {
	t.Parallel()
	var mood atomic.Int32
	mood.Store(wrecked)
	greeter := func(c *net.TCPConn, _ <-chan struct{}) {
		if mood.Load() == wrecked {
			rig.Reset(c)
			return
		}
		_, _ = io.WriteString(c, "220 hello\r\n")
	}
	well := rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin", rig.Member("a", rig.Serve(t, greeter)), rig.Member("b", well.Addr())))
	rig.Eventually(t, "a to be ejected", func() bool {
		c, err := net.DialTimeout("tcp", listen, rig.Patience)
		if err != nil {
			return false // reset already
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // b says nothing of itself
		_, _ = c.Read(make([]byte, 1))
		return p.Backend(t, "web", "a").State == "ejected"
	})
}
