package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func dial(t *testing.T, b *Backend) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// exchange sends s and an end, and returns all that comes back.
func exchange(t *testing.T, c *net.TCPConn, s string) string {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestModes(t *testing.T) {
	for _, tc := range []struct {
		name string
		how  Behaviour
		send string
		want string
	}{
		{"named", Behaviour{}, "one\ntwo\n", "db\none\ndb\ntwo\n"},
		{"named drops half a line", Behaviour{}, "one\ntw", "db\none\n"},
		{"named with a greeting", Behaviour{Greeting: "220 hello\r\n"}, "x\n", "220 hello\r\ndb\nx\n"},
		{"serial", Behaviour{Serial: true}, "x\n", "db\nx\n"},
		{"echo", Behaviour{Mode: Echo}, "no newline", "no newline"},
		{"echo with a greeting", Behaviour{Mode: Echo, Greeting: "> "}, "a", "> a"},
		{"sink", Behaviour{Mode: Sink}, strings.Repeat("x", 100_000), "100000\n"},
		{"source", Behaviour{Mode: Source, Length: 200_000}, "", strings.Repeat("\x00", 200_000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := startBackend(t, "db", tc.how)
			if got := exchange(t, dial(t, b), tc.send); got != tc.want {
				t.Errorf("got %.80q (%d bytes), want %.80q (%d bytes)", got, len(got), tc.want, len(tc.want))
			}
			s := b.Stats()
			if s.Accepted != 1 || s.BytesIn != uint64(len(tc.send)) || s.BytesOut != uint64(len(tc.want)) {
				t.Errorf("stats %+v, want %d in and %d out", s, len(tc.send), len(tc.want))
			}
		})
	}
}

func TestBehaviourChangesWhileRunning(t *testing.T) {
	b := startBackend(t, "db", Behaviour{})
	c := dial(t, b)
	r := bufio.NewReader(c)
	ask := func() string {
		t.Helper()
		if _, err := io.WriteString(c, "x\n"); err != nil {
			t.Fatal(err)
		}
		name, err := r.ReadString('\n')
		if err == nil {
			_, err = r.ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	ask()
	b.Behave(Behaviour{Delay: 30 * time.Millisecond})
	start := time.Now()
	ask()
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("an answer after %v in spite of the delay", d)
	}
	if got := b.Behaviour().Delay; got != 30*time.Millisecond {
		t.Errorf("delay %v", got)
	}
}

// Four at once on a serial backend take four delays, not one.
func TestSerialServesOneAtATime(t *testing.T) {
	b := startBackend(t, "db", Behaviour{Serial: true, Delay: 20 * time.Millisecond})
	start := time.Now()
	runLoad(t, b.Addr().String(), Options{Requests: 4, Clients: 4})
	if d := time.Since(start); d < 80*time.Millisecond {
		t.Errorf("four requests took %v", d)
	}
}

func TestStopServesWhatWasEstablished(t *testing.T) {
	b := startBackend(t, "db", Behaviour{})
	open := dial(t, b)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", b.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("a stopped backend accepts")
	}
	if got := exchange(t, open, "x\n"); got != "db\nx\n" {
		t.Errorf("the open connection got %q", got)
	}
	if err := b.Stop(); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	for range 2 {
		if err := b.Revive(); err != nil {
			t.Fatal(err)
		}
	}
	if got := exchange(t, dial(t, b), "x\n"); got != "db\nx\n" {
		t.Errorf("after the revival got %q", got)
	}
}

// A client whose connect succeeded is answered, however often the server stops
// and returns: the only failure allowed is a refused connect.
func TestStoppingResetsNobody(t *testing.T) {
	b := startBackend(t, "db", Behaviour{})
	ctx, cancel := context.WithCancel(t.Context())
	var flapping sync.WaitGroup
	flapping.Go(func() {
		defer cancel()
		for range 30 {
			if err := b.Stop(); err != nil {
				t.Error(err)
			}
			if err := b.Revive(); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	res, err := Run(ctx, Options{Addr: b.Addr().String(), Clients: 8, Size: 64, Timeout: 20 * time.Second, PerConnection: 1})
	if err != nil {
		t.Fatal(err)
	}
	flapping.Wait()
	for _, e := range res.Errors {
		if e.Kind != Refused {
			t.Errorf("%d requests failed: %s: %s", e.Count, e.Kind, e.First)
		}
	}
	if res.Requests == 0 {
		t.Error("nothing was answered")
	}
}

func TestKillResetsAndReviveServes(t *testing.T) {
	b := startBackend(t, "db", Behaviour{Delay: time.Hour})
	c := dial(t, b)
	if _, err := io.WriteString(c, "x\n"); err != nil {
		t.Fatal(err)
	}
	for b.Stats().BytesIn == 0 { // it has the request, and is in its delay
		time.Sleep(time.Millisecond)
	}
	b.Kill()
	if _, err := c.Read(make([]byte, 1)); kindOf(err) != Reset {
		t.Errorf("read on a killed backend's connection: %v, want a reset", err)
	}
	b.Kill()
	b.Behave(Behaviour{})
	if err := b.Revive(); err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, dial(t, b), "x\n"); got != "db\nx\n" {
		t.Errorf("after the revival got %q", got)
	}
}

func TestCloseIsFinal(t *testing.T) {
	b := startBackend(t, "db", Behaviour{Serial: true, Delay: time.Hour})
	c := dial(t, b)
	waiting := dial(t, b)
	for _, c := range []net.Conn{c, waiting} {
		if _, err := io.WriteString(c, "x\n"); err != nil {
			t.Fatal(err)
		}
	}
	for b.Stats().BytesIn < 4 {
		time.Sleep(time.Millisecond)
	}
	b.Close()
	b.Close()
	if err := b.Revive(); err == nil {
		t.Error("a closed backend revived")
	}
	if n := b.Stats().Active; n != 0 {
		t.Errorf("%d connections are open after Close", n)
	}
}

func TestBackendOnAGivenAddress(t *testing.T) {
	hold, err := Reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := hold.Addr().String()
	if _, err := net.Dial("tcp", addr); kindOf(err) != Refused {
		t.Errorf("connect to a reserved port: %v, want refused", err)
	}
	hold.Close()
	hold.Close()
	b, err := NewBackend("db", addr, Behaviour{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.Name() != "db" || b.Addr().String() != addr {
		t.Errorf("backend %s on %s, want db on %s", b.Name(), b.Addr(), addr)
	}
	if _, err := NewBackend("other", addr, Behaviour{}); err == nil {
		t.Error("two backends on one address")
	}
	for _, bad := range []string{"localhost:1", "127.0.0.1", "192.0.2.1:0"} {
		if _, err := NewBackend("bad", bad, Behaviour{}); err == nil {
			t.Errorf("a backend on %s", bad)
		}
	}
}

func TestReservationsDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for _, addr := range bytes.Fields(bytes.Repeat([]byte("127.0.0.1:0 [::1]:0 "), 50)) {
		r, err := Reserve(string(addr))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if seen[r.Addr().String()] {
			t.Fatalf("%s twice", r.Addr())
		}
		seen[r.Addr().String()] = true
	}
}
