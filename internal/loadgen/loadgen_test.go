package loadgen

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestCountsAreExact(t *testing.T) {
	b := startBackend(t, "db1", Behaviour{})
	for _, tc := range []struct {
		name                      string
		requests                  uint64
		clients, per              int
		connections, connectionsN uint64 // least and most
	}{
		{"a connection each", 100, 4, 1, 100, 100},
		{"one client, ten a connection", 100, 1, 10, 10, 10},
		{"four clients, ten a connection", 100, 4, 10, 10, 13},
		{"no limit", 100, 4, 0, 1, 4},
		{"more clients than requests", 3, 10, 1, 3, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := b.Stats()
			var seen atomic.Uint64
			res := runLoad(t, b.Addr().String(), Options{
				Requests: tc.requests, Clients: tc.clients, PerConnection: tc.per,
				Observe: func(s Sample) {
					if s.Backend == "db1" && s.Err == nil && s.Latency > 0 {
						seen.Add(1)
					}
				},
			})
			if res.Requests != tc.requests || res.Failed != 0 || len(res.Errors) != 0 || res.Unsent != 0 {
				t.Errorf("result %+v, want %d requests and no failure", res, tc.requests)
			}
			if seen.Load() != tc.requests {
				t.Errorf("observed %d good samples, want %d", seen.Load(), tc.requests)
			}
			if res.Connections < tc.connections || res.Connections > tc.connectionsN {
				t.Errorf("%d connections, want %d to %d", res.Connections, tc.connections, tc.connectionsN)
			}
			if len(res.Backends) != 1 || res.Backends[0].Name != "db1" || res.Backends[0].Requests != tc.requests {
				t.Errorf("backends %+v, want db1 with all", res.Backends)
			}
			if got := b.Stats().Requests - before.Requests; got != tc.requests {
				t.Errorf("the backend served %d, want %d", got, tc.requests)
			}
		})
	}
}

func TestEverySize(t *testing.T) {
	named := startBackend(t, "n", Behaviour{})
	echo := startBackend(t, "ignored", Behaviour{Mode: Echo})
	for _, size := range []int{1, 2, 3, 22, 4096, 4097, MaxSize} {
		for b, want := range map[*Backend]string{named: "n", echo: ""} {
			res := runLoad(t, b.Addr().String(), Options{Requests: 20, Size: size, PerConnection: 5})
			if res.Requests != 20 || len(res.Backends) != 1 || res.Backends[0].Name != want {
				t.Errorf("size %d on %q: %+v", size, want, res)
			}
		}
	}
}

func TestErrorsByKind(t *testing.T) {
	stopped := startBackend(t, "stopped", Behaviour{})
	if err := stopped.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		addr    string
		timeout time.Duration
		want    Kind
	}{
		{"refused", stopped.Addr().String(), 0, Refused},
		{"reset", startBackend(t, "r", Behaviour{Reset: true}).Addr().String(), 0, Reset},
		{"closed", startBackend(t, "c", Behaviour{Mode: Source}).Addr().String(), 0, Closed},
		{"cut short", startBackend(t, "s", Behaviour{Mode: Source, Length: 5}).Addr().String(), 0, Closed},
		{"wrong", startBackend(t, "w", Behaviour{Greeting: "hello\n"}).Addr().String(), 0, WrongReply},
		{"endless line", startBackend(t, "e", Behaviour{Mode: Source, Length: 1 << 20}).Addr().String(), 0, WrongReply},
		{"timeout", startBackend(t, "t", Behaviour{Delay: time.Hour}).Addr().String(), 50 * time.Millisecond, TimedOut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := runLoad(t, tc.addr, Options{Requests: 8, Timeout: tc.timeout})
			if res.Failed != 8 || res.Requests != 0 || len(res.Errors) != 1 {
				t.Fatalf("result %+v, want 8 failures of one kind", res)
			}
			if e := res.Errors[0]; e.Kind != tc.want || e.Count != 8 || e.First == "" {
				t.Errorf("error %+v, want kind %s", e, tc.want)
			}
		})
	}
}

// The schedule of an open loop is kept exactly: so many requests are due and so
// many are sent, however slow the machine.
func TestOpenLoopSendsWhatIsDue(t *testing.T) {
	b := startBackend(t, "b", Behaviour{})
	res := runLoad(t, b.Addr().String(), Options{Clients: 50, Rate: 200, Duration: time.Second / 2})
	if res.Requests+res.Unsent != 100 || res.Failed != 0 {
		t.Errorf("%d answered and %d unsent of 100 due", res.Requests, res.Unsent)
	}
	if res.Elapsed < time.Second/2 {
		t.Errorf("the run took %v, less than its duration", res.Elapsed)
	}
}

// One client against a server that takes 20 ms cannot keep 1000/s. What it
// does send was due long before, and that wait is part of the latency.
func TestLatencyCountsFromTheIntendedStart(t *testing.T) {
	b := startBackend(t, "b", Behaviour{Delay: 20 * time.Millisecond})
	res := runLoad(t, b.Addr().String(), Options{Clients: 1, Rate: 1000, Requests: 20})
	// The last request was due after 19 ms and could not end before 400 ms.
	if res.Latency.Max < 380*time.Millisecond {
		t.Errorf("max latency %v, want at least 380ms", res.Latency.Max)
	}
	closed := runLoad(t, b.Addr().String(), Options{Clients: 1, Requests: 20})
	if closed.Latency.P50 < 20*time.Millisecond || closed.Latency.Max < closed.Latency.P99 {
		t.Errorf("latency of a closed loop %+v, want at least the delay", closed.Latency)
	}
}

func TestUnsentIsReported(t *testing.T) {
	b := startBackend(t, "b", Behaviour{Delay: 100 * time.Millisecond})
	res := runLoad(t, b.Addr().String(), Options{Clients: 1, Rate: 1000, Duration: 250 * time.Millisecond})
	if res.Requests+res.Unsent != 250 || res.Requests > 3 || res.Requests == 0 {
		t.Errorf("%d answered and %d unsent, want 250 together and at most 3 answered", res.Requests, res.Unsent)
	}
}

// The end of the context stops new requests; the ones that are out are counted.
func TestContextEndsARunInOrder(t *testing.T) {
	for name, rate := range map[string]float64{"closed": 0, "open": 1000} {
		t.Run(name, func(t *testing.T) {
			b := startBackend(t, "b", Behaviour{Delay: time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			var once sync.Once
			res, err := Run(ctx, Options{
				Addr: b.Addr().String(), Clients: 8, Size: 64, Rate: rate,
				Timeout: 20 * time.Second,
				Observe: func(Sample) { once.Do(cancel) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if res.Failed != 0 || res.Requests == 0 || res.Requests != b.Stats().Requests {
				t.Errorf("%d answered, %d failed, the backend served %d", res.Requests, res.Failed, b.Stats().Requests)
			}
		})
	}
}

func TestTwoBackendsAreToldApart(t *testing.T) {
	a, b := startBackend(t, "a", Behaviour{}), startBackend(t, "b", Behaviour{})
	front := alternate(t, a.Addr().String(), b.Addr().String())
	res := runLoad(t, front, Options{Requests: 40, Clients: 1, PerConnection: 1})
	want := []string{"a", "b"}
	if len(res.Backends) != 2 {
		t.Fatalf("backends %+v", res.Backends)
	}
	for i, r := range res.Backends {
		if r.Name != want[i] || r.Requests != 20 {
			t.Errorf("backend %d is %+v, want %s with 20", i, r, want[i])
		}
	}
}

// alternate forwards its connections to the addresses in turn, one at a time.
func alternate(t *testing.T, addrs ...string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			relayOnce(c, addrs[i%len(addrs)])
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

func relayOnce(c net.Conn, addr string) {
	defer c.Close()
	s, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer s.Close()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(s, c)
		_ = s.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(c, s)
	up.Wait()
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := Run(t.Context(), Options{Duration: -1, Rate: -1, PerConnection: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"address", "clients", "duration", "rate", "requests per connection", "size", "timeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %s", err, want)
		}
	}
	ok := Options{Addr: "localhost:1", Clients: 1, Requests: 1, Size: 1, Timeout: 1}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:no-such-service", "127.0.0.1:0", "127.0.0.1:65536", "::1:80", "no.such.host.invalid:1"} {
		ok.Addr = addr
		if err, isName := ok.Validate(), strings.HasPrefix(addr, "no."); (err == nil) != isName {
			t.Errorf("address %q: valid is %v", addr, err)
		}
		if _, err := Run(t.Context(), ok); err == nil {
			t.Errorf("address %q: no error", addr)
		}
	}
}

func TestLocalhostPrefersIPv4(t *testing.T) {
	got, err := resolve(t.Context(), "localhost:80")
	if err != nil {
		t.Fatal(err)
	}
	if got != "127.0.0.1:80" {
		t.Errorf("localhost:80 is %s", got)
	}
	if got, err = resolve(t.Context(), "[::1]:80"); err != nil || got != "[::1]:80" {
		t.Errorf("[::1]:80 is %s, %v", got, err)
	}
}

func TestRequestsDiffer(t *testing.T) {
	for size, want := range map[int]string{1: "\n", 2: ".\n", 3: ".5\n", 8: "..12345\n", 10: "....12345\n"} {
		p := make([]byte, size)
		if writeRequest(p, 12345); string(p) != want {
			t.Errorf("size %d: %q, want %q", size, p, want)
		}
	}
}
