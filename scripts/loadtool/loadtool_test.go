package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pong is a server that answers every line with answer and counts connections.
// It ends with the test.
func pong(t *testing.T, answer string) (addr string, accepted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int64)
	var wg sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		for s := bufio.NewScanner(c); s.Scan(); {
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String(), accepted
}

func TestHold(t *testing.T) {
	addr, accepted := pong(t, pingAnswer)
	var out bytes.Buffer
	err := run(t.Context(), []string{"hold", "-addr", addr, "-pid", fmt.Sprint(os.Getpid()), "-warm", "5", "-conns", "20", "-settle", "1ms"}, nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	if got := accepted.Load(); got != 25 {
		t.Errorf("%d connections were held, want 25", got)
	}
	var anon, rss int
	if _, err := fmt.Sscanf(out.String(), "anon %d\nrss %d\n", &anon, &rss); err != nil {
		t.Errorf("output %q: %v", out.String(), err)
	}
}

func TestHoldNoticesWrongAnswers(t *testing.T) {
	addr, _ := pong(t, "-ERR \r\n")
	_, err := hold{addr: addr, pid: os.Getpid(), conns: 1}.run()
	if err == nil || !strings.Contains(err.Error(), "answer to PING") {
		t.Errorf("error %v", err)
	}
}

func TestRate(t *testing.T) {
	addr, accepted := pong(t, pingAnswer)
	var out bytes.Buffer
	err := run(t.Context(), []string{"rate", "-addr", addr, "-rate", "500", "-conns", "7", "-warm", "50ms", "-duration", "300ms"}, nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	if got := accepted.Load(); got != 7 {
		t.Errorf("%d connections, want 7", got)
	}
	var p50, p99, p999 float64
	if _, err := fmt.Sscanf(out.String(), "p50 %f\np99 %f\np999 %f\n", &p50, &p99, &p999); err != nil {
		t.Fatalf("output %q: %v", out.String(), err)
	}
	if p50 <= 0 || p99 < p50 || p999 < p99 {
		t.Errorf("quantiles out of order: %v %v %v", p50, p99, p999)
	}
}

func TestRateNoticesClosedConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	err = run(t.Context(), []string{"rate", "-addr", l.Addr().String(), "-rate", "100", "-conns", "1", "-duration", "10s"}, nil, io.Discard)
	if err == nil {
		t.Error("a closed connection went unnoticed")
	}
	<-done
}

func TestQuantile(t *testing.T) {
	sorted := make([]time.Duration, 100)
	for i := range sorted {
		sorted[i] = time.Duration(i)
	}
	for p, want := range map[float64]time.Duration{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := quantile(sorted, p); got != want {
			t.Errorf("quantile(%v) = %v, want %v", p, got, want)
		}
	}
}

func TestProcessNumbers(t *testing.T) {
	for start := time.Now(); ; { // spin until it shows
		seconds, err := cpuSeconds(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if seconds > 0 {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal("ten seconds of work took no time")
		}
	}
	m, err := readMemory(os.Getpid())
	if err != nil || m.anon <= 0 || m.rss < m.anon {
		t.Errorf("memory %+v, %v", m, err)
	}
	// A parent is weighed with its children: this process is below its parent.
	processes, err := tree(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := processes[os.Getpid()]; !ok {
		t.Error("a child is missing below its parent")
	}
	if _, err := readMemory(1 << 30); err == nil {
		t.Error("memory of no process")
	}
}

func TestReport(t *testing.T) {
	in := strings.NewReader(`
{"workers":1,"round":1,"proxy":"haproxy","workload":"connect","metric":"rate","value":7000}
{"workers":1,"round":2,"proxy":"haproxy","workload":"connect","metric":"rate","value":8000}
{"workers":1,"round":3,"proxy":"haproxy","workload":"connect","metric":"rate","value":6300}
{"workers":1,"round":1,"proxy":"nginx","workload":"connect","metric":"rate","value":8000}
{"workers":1,"round":1,"proxy":"poise","workload":"connect","metric":"rate","value":9400}
{"workers":1,"round":1,"proxy":"haproxy","workload":"message","metric":"cpu","value":30}
{"workers":1,"round":1,"proxy":"poise","workload":"message","metric":"cpu","value":27.5}
{"workers":1,"round":1,"proxy":"floor","workload":"message","metric":"cpu","value":25}
{"workers":1,"round":1,"proxy":"nginx","workload":"idle","metric":"anon","value":9500}
{"workers":1,"round":1,"proxy":"poise","workload":"idle","metric":"anon","value":1025}
{"workers":2,"round":1,"proxy":"direct","workload":"latency","metric":"p99","value":100}
{"workers":2,"round":1,"proxy":"haproxy","workload":"latency","metric":"p99","value":150}
{"workers":2,"round":1,"proxy":"poise","workload":"latency","metric":"p99","value":140}
{"workers":3,"round":1,"proxy":"direct","workload":"latency","metric":"p99","value":100}
{"workers":3,"round":1,"proxy":"haproxy","workload":"latency","metric":"p99","value":101}
{"workers":3,"round":1,"proxy":"nginx","workload":"latency","metric":"p99","value":99}
{"workers":3,"round":1,"proxy":"poise","workload":"latency","metric":"p99","value":98}
{"workers":3,"round":1,"proxy":"nginx","workload":"udp","metric":"many-lost","value":0.5}
{"workers":3,"round":1,"proxy":"poise","workload":"udp","metric":"many-lost","value":0.25}
{"workers":3,"round":1,"proxy":"nginx","workload":"udp","metric":"many-busy","value":99}
{"workers":3,"round":1,"proxy":"poise","workload":"udp","metric":"many-busy","value":98}
{"workers":3,"round":1,"proxy":"nginx","workload":"udp","metric":"plain-lost","value":0}
{"workers":3,"round":1,"proxy":"poise","workload":"udp","metric":"plain-lost","value":0}
{"workers":2,"round":2,"proxy":"poise","workload":"latency","error":"it broke"}
`)
	file := filepath.Join(t.TempDir(), "raw.json")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"report", "-out", file, "-machine", "a slide rule"}, in, &out); err != nil {
		t.Fatal(err)
	}
	want := `| workers | workload | direct | HAProxy | nginx | Poise | floor | Poise ÷ HAProxy | Poise ÷ nginx | Poise ÷ floor |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
| 1 | new connections, 1/s | – | 7000 ±14% | 8000 | 9400 | – | 1.34 (≥ 1.30) | **1.18** (≥ 1.20) | – |
| 1 | — CPU per message, µs | – | 30.0 | – | 27.5 | 25.0 | 0.92 | – | **1.10** (≤ 1.05) |
| 1 | user memory per idle connection, B | – | – | 9500 | **1025** (≤ 1024) | – | – | 0.11 | – |
| 2 | added p99 at half load, µs | – | 50.0 | – | 40.0 | – | 0.80 (≤ 1.00) | – | – |
| 2 | — p99, µs | 100 | 150 | – | 140 | – | 0.93 | – | – |
| 3 | added p99 at half load, µs | – | 1.00 | -1.00 | -2.00 | – | < 0 (≤ 1.00) | – | – |
| 3 | — p99, µs | 100 | 101 | 99.0 | 98.0 | – | 0.97 | 0.99 | – |
| 3 | — of what it may use of its cores, % | – | – | 99.0 | 98.0 | – | – | – | – |
| 3 | — lost, % | – | – | 0.500 | 0.250 | – | – | – | – |

Medians; ± is the round farthest from the median. A ratio is followed by its goal; **bold** misses it. Measured on a slide rule.

- failed: latency through poise, workers 2, round 2: it broke
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"machine": "a slide rule"`, `"value": 7000`, `"error": "it broke"`} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("%s is missing in the raw file", part)
		}
	}
}

func TestBadUse(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"sing"},
		{"rate", "-addr", "127.0.0.1:1"},
		{"hold", "-conns", "0"},
		{"cpu", "-pid", "1073741824"},
		{"udp-echo"},
		{"udp-rate"},
		{"udp-rate", "-addr", "127.0.0.1:1", "-size", "11"},
		{"udp-blast", "-addr", "127.0.0.1:1"},
		{"udp-blast", "-addr", "127.0.0.1:1", "-sink", "127.0.0.1:2", "-rate", "-1"},
		{"tls-handshakes"},
		{"tls-bulk"},
		{"tls-cert"},
		{"stream"},
	} {
		if err := run(t.Context(), args, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if err := run(t.Context(), []string{"report"}, strings.NewReader("not JSON"), io.Discard); err == nil {
		t.Error("samples that are no JSON were accepted")
	}
}
