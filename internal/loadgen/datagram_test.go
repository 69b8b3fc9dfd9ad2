package loadgen

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

func startDatagramBackend(t *testing.T, name string, how DatagramBehaviour) *DatagramBackend {
	t.Helper()
	b, err := NewDatagramBackend(name, "", how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func dialUDP(t *testing.T, b *DatagramBackend) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// exchangeUDP sends a datagram and returns the one that comes back.
func exchangeUDP(t *testing.T, c net.Conn, p []byte) []byte {
	t.Helper()
	if _, err := c.Write(p); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, MaxDatagram+1)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestDatagramModes(t *testing.T) {
	long := bytes.Repeat([]byte{'x'}, MaxDatagram)
	for _, tc := range []struct {
		name       string
		how        DatagramBehaviour
		send, want []byte
	}{
		{"named", DatagramBehaviour{}, []byte("x\n"), []byte("db\nx\n")},
		{"named with nothing", DatagramBehaviour{}, nil, []byte("db\n")},
		{"named without room for the name", DatagramBehaviour{}, long, long},
		{"echo", DatagramBehaviour{Mode: Echo}, []byte("x\n"), []byte("x\n")},
		{"echo with nothing", DatagramBehaviour{Mode: Echo}, nil, nil},
		{"delayed", DatagramBehaviour{Delay: time.Millisecond}, []byte("x\n"), []byte("db\nx\n")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := startDatagramBackend(t, "db", tc.how)
			if got := exchangeUDP(t, dialUDP(t, b), tc.send); !bytes.Equal(got, tc.want) {
				t.Errorf("got %.80q (%d bytes), want %.80q (%d bytes)", got, len(got), tc.want, len(tc.want))
			}
			if s, want := b.Stats(), (DatagramStats{1, 1, uint64(len(tc.send)), uint64(len(tc.want))}); s != want {
				t.Errorf("stats %+v, want %+v", s, want)
			}
		})
	}
}

func TestDatagramBackendStopsAndReturns(t *testing.T) {
	b := startDatagramBackend(t, "db", DatagramBehaviour{})
	for range 3 {
		c := dialUDP(t, b)
		if got := exchangeUDP(t, c, []byte("x\n")); string(got) != "db\nx\n" {
			t.Errorf("got %q", got)
		}
		b.Stop()
		b.Stop()
		// The port is reserved and not deaf: whoever sends is told.
		if _, err := c.Write([]byte("y\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 10)); kindOf(err) != Refused {
			t.Errorf("read from a stopped backend: %v, want refused", err)
		}
		for range 2 {
			if err := b.Revive(); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Close()
	b.Close()
	if err := b.Revive(); err == nil {
		t.Error("a closed backend revived")
	}
}

func TestClosingWaitsForNoDelay(t *testing.T) {
	b := startDatagramBackend(t, "db", DatagramBehaviour{Delay: time.Hour})
	if _, err := dialUDP(t, b).Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	for b.Stats().Received == 0 {
		time.Sleep(time.Millisecond)
	}
	b.Close() // the test would not end in time, and goleak would see the goroutine
	if n := b.Stats().Answered; n != 0 {
		t.Errorf("%d datagrams were answered before their time", n)
	}
}

func TestDatagramBackendOnAGivenAddress(t *testing.T) {
	first := startDatagramBackend(t, "db", DatagramBehaviour{})
	addr := first.Addr().String()
	if b, err := NewDatagramBackend("other", addr, DatagramBehaviour{}); err == nil {
		b.Close()
		t.Error("two backends on one address")
	}
	first.Close()
	b, err := NewDatagramBackend("db", addr, DatagramBehaviour{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.Name() != "db" || b.Addr().String() != addr {
		t.Errorf("backend %s on %s, want db on %s", b.Name(), b.Addr(), addr)
	}
	for _, bad := range []string{"localhost:1", "127.0.0.1", "192.0.2.1:0"} {
		if _, err := NewDatagramBackend("bad", bad, DatagramBehaviour{}); err == nil {
			t.Errorf("a backend on %s", bad)
		}
	}
	six, err := NewDatagramBackend("six", "[::1]:0", DatagramBehaviour{})
	if err != nil {
		t.Fatal(err)
	}
	defer six.Close()
	if got := exchangeUDP(t, dialUDP(t, six), []byte("x\n")); string(got) != "six\nx\n" {
		t.Errorf("got %q over IPv6", got)
	}
}

func TestDatagramCountsAreExact(t *testing.T) {
	b := startDatagramBackend(t, "db1", DatagramBehaviour{})
	for _, tc := range []struct {
		name                   string
		clients, per           int
		sockets, socketsAtMost uint64
	}{
		{"a socket each", 4, 1, 100, 100},
		{"one client, ten on a socket", 1, 10, 10, 10},
		{"four clients, ten on a socket", 4, 10, 10, 13},
		{"no limit", 4, 0, 1, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := b.Stats()
			res := runLoad(t, b.Addr().String(), Options{UDP: true, Requests: 100, Clients: tc.clients, PerConnection: tc.per})
			if res.Requests != 100 || res.Failed != 0 || res.Lost() != 0 {
				t.Errorf("result %+v, want 100 requests and no failure", res)
			}
			if res.Connections < tc.sockets || res.Connections > tc.socketsAtMost {
				t.Errorf("%d sockets, want %d to %d", res.Connections, tc.sockets, tc.socketsAtMost)
			}
			if len(res.Backends) != 1 || res.Backends[0].Name != "db1" || res.Backends[0].Requests != 100 {
				t.Errorf("backends %+v, want db1 with all", res.Backends)
			}
			if got := b.Stats().Answered - before.Answered; got != 100 {
				t.Errorf("the backend served %d, want 100", got)
			}
		})
	}
}

func TestEveryDatagramSize(t *testing.T) {
	named := startDatagramBackend(t, "n", DatagramBehaviour{})
	echo := startDatagramBackend(t, "ignored", DatagramBehaviour{Mode: Echo})
	for _, size := range []int{1, 2, 3, 22, 1472, 1473, MaxDatagram - 2, MaxDatagram} {
		for b, want := range map[*DatagramBackend]string{named: "n", echo: ""} {
			if size == MaxDatagram {
				want = "" // there is no room for a name
			}
			// One at a time: the system need not queue more of the longest.
			res := runLoad(t, b.Addr().String(), Options{UDP: true, Requests: 5, Clients: 1, Size: size})
			if res.Requests != 5 || len(res.Backends) != 1 || res.Backends[0].Name != want {
				t.Errorf("size %d on %q: %+v", size, want, res)
			}
		}
	}
	o := Options{UDP: true, Clients: 1, Size: MaxDatagram + 1, Timeout: time.Second}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "65507") {
		t.Errorf("error %v about a size that no datagram has", err)
	}
}

func TestDatagramErrorsByKind(t *testing.T) {
	stopped := startDatagramBackend(t, "stopped", DatagramBehaviour{})
	stopped.Stop()
	for _, tc := range []struct {
		name    string
		addr    string
		timeout time.Duration
		want    Kind
	}{
		{"refused", stopped.Addr().String(), 0, Refused},
		{"lost", startDatagramBackend(t, "s", DatagramBehaviour{Mode: Sink}).Addr().String(), 50 * time.Millisecond, TimedOut},
		{"wrong", answerWith(t, "hello\n"), 0, WrongReply},
		{"wrong after a name", answerWith(t, "db\nhello\n"), 0, WrongReply},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := runLoad(t, tc.addr, Options{UDP: true, Requests: 8, Timeout: tc.timeout})
			if res.Failed != 8 || res.Requests != 0 || len(res.Errors) != 1 {
				t.Fatalf("result %+v, want 8 failures of one kind", res)
			}
			if e := res.Errors[0]; e.Kind != tc.want || e.Count != 8 || e.First == "" {
				t.Errorf("error %+v, want kind %s", e, tc.want)
			}
			if lost := res.Lost(); (lost == 8) != (tc.want == TimedOut) {
				t.Errorf("%d lost", lost)
			}
		})
	}
}

// answerWith is a server that answers every datagram with the same.
func answerWith(t *testing.T, reply string) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1<<16); ; {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(reply), from)
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c.LocalAddr().String()
}

// A reply that comes after its request was given up must not pass for the reply
// to the next one: that would be a false alarm about mixed-up clients.
func TestLateRepliesAreNobodys(t *testing.T) {
	b := startDatagramBackend(t, "db", DatagramBehaviour{Delay: 60 * time.Millisecond})
	res := runLoad(t, b.Addr().String(), Options{UDP: true, Requests: 10, Clients: 1, Timeout: 40 * time.Millisecond})
	if res.Lost() != res.Failed || res.Lost() == 0 {
		t.Errorf("result %+v, want losses and nothing else", res)
	}
}
