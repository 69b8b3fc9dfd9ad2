package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// datagrams is a backend that answers each datagram with what answer returns; nil
// is no answer.
func datagrams(t *testing.T, answer func(string) []string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		buf := make([]byte, maxDatagram)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, a := range answer(string(buf[:n])) {
				_, _ = conn.WriteTo([]byte(a), from)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); running.Wait() })
	return conn.LocalAddr().String()
}

func TestUDPProbe(t *testing.T) {
	t.Parallel()
	echo := func(in string) []string { return []string{in} }
	for _, tt := range []struct {
		name   string
		ask    Datagram
		answer func(string) []string
		want   Reason
		err    string
	}{
		{name: "text", ask: Datagram{Send: "ping", Expect: Pattern{Text: "ing"}}, answer: echo},
		{name: "bytes", ask: Datagram{Send: "\x00\xff", Expect: Pattern{Text: "\x00\xff"}}, answer: echo},
		{name: "regex over the whole datagram", ask: Datagram{Send: "ping", Expect: Pattern{Regex: "^p.*g$"}}, answer: echo},
		{name: "large", ask: Datagram{Send: strings.Repeat("x", 40_000) + "y", Expect: Pattern{Text: "xy"}}, answer: echo},
		{name: "another answer", ask: Datagram{Send: "ping", Expect: Pattern{Text: "pong"}}, answer: echo, want: L7RSP, err: `answered "ping", want "pong"`},
		{name: "the right one too late", ask: Datagram{Send: "ping", Expect: Pattern{Text: "pong"}}, answer: func(string) []string { return []string{"pi", "pong"} }, want: L7RSP, err: `answered "pi"`},
		{name: "not the whole datagram", ask: Datagram{Send: "ping", Expect: Pattern{Regex: "^pin$"}}, answer: echo, want: L7RSP},
		{name: "empty answer", ask: Datagram{Send: "ping", Expect: Pattern{Text: "ping"}}, answer: func(string) []string { return []string{""} }, want: L7RSP, err: `answered ""`},
		{name: "too large to send", ask: Datagram{Send: strings.Repeat("x", 70_000), Expect: Pattern{Text: "x"}}, answer: echo, want: L4CON, err: "message too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := probeOnce(Spec{Type: "udp", UDP: tt.ask}.Prober("tcp", datagrams(t, tt.answer)), longTimeout)
			wantOutcome(t, err, tt.want, tt.err)
		})
	}
}

var pingPong = Spec{Type: "udp", UDP: Datagram{Send: "ping", Expect: Pattern{Text: "pong"}}}

// ICMP only ever says that a backend is down, and then it says so at once.
func TestUDPProbeOfAClosedPort(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := conn.LocalAddr().String()
	conn.Close()
	start := time.Now()
	wantOutcome(t, probeOnce(pingPong.Prober("tcp", address), longTimeout), L4CON, "connection refused")
	if took := time.Since(start); took > longTimeout/2 {
		t.Errorf("took %v", took)
	}
}

// Silence is not health.
func TestUDPProbeTimesOut(t *testing.T) {
	t.Parallel()
	address := datagrams(t, func(string) []string { return nil })
	wantOutcome(t, probeOnce(pingPong.Prober("tcp", address), shortTimeout), L7TOUT, "no answer within the timeout")
}

// Nobody but the backend can answer.
func TestUDPProbeTakesNoOthersAnswer(t *testing.T) {
	stranger, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	backend, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 100)
		_, from, err := backend.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = stranger.WriteTo([]byte("wrong"), from)
		_, _ = backend.WriteTo([]byte("pong"), from)
	}()
	if err := probeOnce(pingPong.Prober("tcp", backend.LocalAddr().String()), longTimeout); err != nil {
		t.Error(err)
	}
	<-done
}

func TestUDPProbeOfAUnixSocket(t *testing.T) {
	err := probeOnce(pingPong.Prober("unix", filepath.Join(t.TempDir(), "x")), longTimeout)
	wantOutcome(t, err, L4CON, "takes no datagrams")
}

func TestUDPProbeLeavesNothingOpen(t *testing.T) {
	p := pingPong
	p.Source = netip.MustParseAddr("127.0.0.1")
	prober := p.Prober("tcp", datagrams(t, func(string) []string { return []string{"pong"} }))
	before := openDescriptors(t)
	for range 100 {
		if err := probeOnce(prober, longTimeout); err != nil {
			t.Fatal(err)
		}
	}
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestUDPProbeEndsWithItsContext(t *testing.T) {
	address := datagrams(t, func(string) []string { return nil })
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(20*time.Millisecond, cancel)
	defer timer.Stop()
	start := time.Now()
	_ = pingPong.Prober("tcp", address).Probe(ctx)
	if took := time.Since(start); took > longTimeout/2 {
		t.Errorf("returned after %v", took)
	}
	cancel()
}

// guarded are the ports of others, of which the first so many that are offered rest.
type guarded struct {
	mu     sync.Mutex
	busy   int
	rested []netip.AddrPort
}

func (g *guarded) Rests(_, _ netip.AddrPort) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	return g.busy >= 0
}

func (g *guarded) Rest(local, _ netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rested = append(g.rested, local)
}

// A question in datagrams keeps clear of the ports at which answers to others may come,
// and if it has no answer its own port is kept from them. Within a combination too.
func TestDatagramPorts(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ask := Datagram{Send: "ping", Expect: Pattern{Text: "pong"}}
	for name, spec := range map[string]Spec{
		"udp": {Type: "udp", UDP: ask},
		"dns": {Type: "dns", DNS: DNSQuery{Name: "example.org"}},
		"all": {Type: AllOf, All: []Spec{{Type: "udp", UDP: ask, Timeout: time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			probe := func(g *guarded) (from netip.AddrPort, err error) {
				ctx, cancel := context.WithTimeout(withPorts(t.Context(), g), time.Minute)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- timed(ctx, spec.Prober("udp", server.LocalAddr().String()), true).err }()
				_ = server.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, a, err := server.ReadFrom(make([]byte, 1500)); err == nil {
					from = udpAddr(a)
				}
				cancel() // as a timeout does
				return from, <-done
			}
			for _, busy := range []int{0, maxResting - 1} {
				g := &guarded{busy: busy}
				from, _ := probe(g)
				if !from.IsValid() || len(g.rested) != 1 || g.rested[0] != from {
					t.Errorf("with %d ports that rest: asked from %v, rested %v", busy, from, g.rested)
				}
			}
		})
	}
	ctx := withPorts(t.Context(), &guarded{busy: maxResting})
	if err := (Spec{Type: "udp", UDP: ask}).Prober("udp", server.LocalAddr().String()).Probe(ctx); !errors.Is(err, ErrLocal) {
		t.Errorf("without a port: %v", err)
	}
}
