package health

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// scripted is a backend that runs script on every connection; it closes the
// connection after the script and waits for all scripts when the test ends.
type scripted struct {
	network, address string
	stop             func() // listening; scripts go on
	accepted         atomic.Int64
	open, openMax    atomic.Int64
}

func newScripted(t *testing.T, network string, script func(net.Conn)) *scripted {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "backend.sock")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{network: network, address: ln.Addr().String(), stop: func() { ln.Close() }}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			n := s.open.Add(1)
			s.openMax.Store(max(n, s.openMax.Load()))
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			running.Go(func() {
				defer stop()
				defer conn.Close()
				defer s.open.Add(-1)
				script(conn)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		cancel()
		running.Wait()
	})
	return s
}

// probe runs one probe of spec on the backend with a total deadline.
func (s *scripted) probe(spec Spec, timeout time.Duration) error {
	return probeOnce(spec.Prober(s.network, s.address), timeout)
}

func probeOnce(p Prober, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return p.Probe(ctx)
}

func wantReason(t *testing.T, err error, want Reason) {
	t.Helper()
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("error %v, want a failure with reason %s", err, want)
	}
	if f.Reason != want {
		t.Fatalf("%v, want reason %s", err, want)
	}
}

// longTimeout is of probes that must not time out, shortTimeout of those that do.
const (
	longTimeout  = time.Minute
	shortTimeout = 150 * time.Millisecond
)

// Case O-13: a server that greets at accept, or a little later, must see every
// probe end in order.
func TestTCPProbeNeverResetsAGreetingServer(t *testing.T) {
	greeting := []byte(strings.Repeat("g", 77) + "\n")
	for _, network := range []string{"tcp", "unix"} {
		for name, delay := range map[string]time.Duration{"at once": 0, "late": 4 * time.Millisecond} {
			t.Run(network+" "+name, func(t *testing.T) {
				var ended, reset atomic.Int64
				s := newScripted(t, network, func(conn net.Conn) {
					time.Sleep(delay)
					_, writeErr := conn.Write(greeting)
					_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
					_, readErr := conn.Read(make([]byte, 1))
					if writeErr == nil && readErr == io.EOF {
						ended.Add(1)
					} else {
						reset.Add(1)
						t.Errorf("write: %v, read: %v", writeErr, readErr)
					}
				})
				p := Spec{Type: "tcp"}.Prober(s.network, s.address)
				const probes = 120
				before := 0
				for i := range probes {
					if i == 10 {
						before = openDescriptors(t)
					}
					if err := probeOnce(p, longTimeout); err != nil {
						t.Fatal(err)
					}
				}
				eventually(t, func() bool { return ended.Load()+reset.Load() == probes && s.open.Load() == 0 })
				if after := openDescriptors(t); after > before {
					t.Errorf("%d descriptors before, %d after", before, after)
				}
				if s.openMax.Load() > 5 { // a script may end some time after its probe
					t.Errorf("%d probe connections at once", s.openMax.Load())
				}
			})
		}
	}
}

// eventually waits for what another goroutine or the kernel is about to do.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(longTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still not so after " + longTimeout.String())
		}
	}
}

// A server that takes no notice of our end costs a moment, not the timeout.
func TestTCPProbeOfASilentServer(t *testing.T) {
	t.Parallel()
	s := newScripted(t, "tcp", func(conn net.Conn) {
		_, _ = io.Copy(io.Discard, conn) // sees our end
		time.Sleep(2 * farewellTime)     // and keeps its own open
	})
	ctx, cancel := context.WithTimeout(context.Background(), longTimeout)
	defer cancel()
	start := time.Now()
	res := timed(ctx, Spec{Type: "tcp"}.Prober(s.network, s.address), true)
	total := time.Since(start)
	if res.err != nil {
		t.Fatal(res.err)
	}
	if total < farewellTime || total > longTimeout/2 {
		t.Errorf("ended after %v, want about %v", total, farewellTime)
	}
	if res.took > total-farewellTime/2 {
		t.Errorf("the farewell counts: took %v of %v", res.took, total)
	}
}

// One that never stops talking is cut off by size.
func TestTCPProbeOfATalkativeServer(t *testing.T) {
	s := newScripted(t, "tcp", func(conn net.Conn) {
		for block := make([]byte, 4<<10); ; {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	})
	if err := s.probe(Spec{Type: "tcp"}, longTimeout); err != nil {
		t.Fatal(err)
	}
}

func TestTCPProbeRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	err = probeOnce(Spec{Type: "tcp"}.Prober("tcp", address), longTimeout)
	wantReason(t, err, L4CON)
	if got, want := err.Error(), "L4CON: connection refused"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error("does not wrap ECONNREFUSED")
	}
}

func TestTCPProbeOfAMissingUnixSocket(t *testing.T) {
	err := probeOnce(Spec{Type: "tcp"}.Prober("unix", filepath.Join(t.TempDir(), "none")), longTimeout)
	wantReason(t, err, L4CON)
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v, want ENOENT", err)
	}
}

// fullQueue listens without ever accepting and fills the accept queue, so that
// the next connection is not answered.
func fullQueue(t *testing.T, network, address string) string {
	t.Helper()
	domain, sa := syscall.AF_INET, syscall.Sockaddr(&syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if network == "unix" {
		domain, sa = syscall.AF_UNIX, &syscall.SockaddrUnix{Name: address}
	}
	fd, err := syscall.Socket(domain, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, sa), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	if network == "tcp" {
		bound, err := syscall.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		in4 := bound.(*syscall.SockaddrInet4)
		address = (&net.TCPAddr{IP: in4.Addr[:], Port: in4.Port}).String()
	}
	for range 16 {
		conn, err := net.DialTimeout(network, address, 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the accept queue takes more than 16 connections")
	return ""
}

func TestTCPProbeTimesOutConnecting(t *testing.T) {
	t.Parallel()
	address := fullQueue(t, "tcp", "")
	for _, typ := range []string{"tcp", "http"} {
		start := time.Now()
		err := probeOnce(Spec{Type: typ}.Prober("tcp", address), shortTimeout)
		wantReason(t, err, L4TOUT)
		if took := time.Since(start); took < shortTimeout || took > longTimeout {
			t.Errorf("%s: took %v with a timeout of %v", typ, took, shortTimeout)
		}
	}
}

// A full queue of a unix socket is told at once, with an errno that calls itself
// a timeout.
func TestTCPProbeOfAFullUnixSocket(t *testing.T) {
	t.Parallel()
	address := fullQueue(t, "unix", filepath.Join(t.TempDir(), "full.sock"))
	wantReason(t, probeOnce(Spec{Type: "tcp"}.Prober("unix", address), longTimeout), L4CON)
}

func TestTCPProbeUsesTheChecksPort(t *testing.T) {
	s := newScripted(t, "tcp", func(net.Conn) {})
	_, port, _ := net.SplitHostPort(s.address)
	n, _ := net.LookupPort("tcp", port)
	if err := probeOnce(Spec{Type: "tcp", Port: n}.Prober("tcp", "127.0.0.1:1"), longTimeout); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ network, in, want string }{
		{"tcp", "10.0.0.1:80", "10.0.0.1:8080"},
		{"tcp", "[2001:db8::1]:80", "[2001:db8::1]:8080"},
		{"unix", "/run/x.sock", "/run/x.sock"},
	} {
		if got := (Spec{Port: 8080}).address(tt.network, tt.in); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.in, got, tt.want)
		}
	}
}

// Case O-34: that this host has no descriptor left says nothing of the backend.
func TestProbeWithoutDescriptors(t *testing.T) {
	s := newScripted(t, "tcp", func(net.Conn) {})
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	none := old
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	tcp, http := s.probe(Spec{Type: "tcp"}, longTimeout), s.probe(Spec{Type: "http"}, longTimeout)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{tcp, http} {
		if f := (*Failure)(nil); !errors.Is(err, ErrLocal) || !errors.Is(err, syscall.EMFILE) || errors.As(err, &f) {
			t.Errorf("%v, want ErrLocal with EMFILE", err)
		}
	}
}

// A probe that is no longer wanted ends at once, in whatever phase it is.
func TestProbesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	silent := newScripted(t, "tcp", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn); time.Sleep(50 * time.Millisecond) })
	full := fullQueue(t, "tcp", "")
	for _, typ := range []string{"tcp", "http"} {
		for _, address := range []string{silent.address, full} {
			ctx, cancel := context.WithCancel(context.Background())
			timer := time.AfterFunc(20*time.Millisecond, cancel)
			start := time.Now()
			_ = Spec{Type: typ}.Prober("tcp", address).Probe(ctx)
			if took := time.Since(start); took > longTimeout/2 {
				t.Errorf("%s of %s: returned after %v", typ, address, took)
			}
			timer.Stop()
			cancel()
		}
	}
}

func TestProberOfUnknownType(t *testing.T) {
	defer func() {
		if r := recover(); r != `health: no check of type "tpc"` {
			t.Errorf("panics with %v", r)
		}
	}()
	Spec{Type: "tpc"}.Prober("tcp", "127.0.0.1:1")
}
