package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// certificate is one of the tool's own.
func certificate(t *testing.T) []tls.Certificate {
	t.Helper()
	dir := t.TempDir()
	if err := run(t.Context(), []string{"tls-cert", "-dir", dir}, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(dir, "both.pem")
	cert, err := tls.LoadX509KeyPair(both, both)
	if err != nil {
		t.Fatal(err)
	}
	apart, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil || !bytes.Equal(apart.Certificate[0], cert.Certificate[0]) {
		t.Fatalf("two certificates, or none: %v", err)
	}
	return []tls.Certificate{cert}
}

// endTLS is a proxy that ends TLS and forwards to another address what change
// makes of it; nil changes nothing.
func endTLS(t *testing.T, to string, config *tls.Config, change func(p []byte)) string {
	t.Helper()
	config.Certificates = certificate(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close() // ends the other direction, too
		for buf := make([]byte, 64<<10); ; {
			n, err := from.Read(buf)
			if change != nil {
				change(buf[:n])
			}
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	open.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", to)
			if err != nil {
				front.Close()
				continue
			}
			open.Go(func() { pass(back, front) })
			open.Go(func() { pass(front, back) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Wait()
	})
	return l.Addr().String()
}

func startStream(t *testing.T, verify int64) string {
	t.Helper()
	return startServer(t, func(ctx context.Context, ready func(netip.AddrPort)) error {
		return stream{listen: anyPort, verify: verify, ready: ready}.run(ctx)
	}).String()
}

func TestTLSHandshakes(t *testing.T) {
	redis, accepted := pong(t, pingAnswer)
	addr := endTLS(t, redis, &tls.Config{}, nil)
	r, err := tlsHandshakes{addr: addr, clients: 3, duration: 300 * time.Millisecond}.run()
	if err != nil {
		t.Fatal(err)
	}
	if r.all != accepted.Load() || r.counted > r.all {
		t.Errorf("%d connections, %d of them counted; the server had %d", r.all, r.counted, accepted.Load())
	}
}

func TestTLSFirst(t *testing.T) {
	redis, _ := pong(t, pingAnswer)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"tls-first", "-addr", endTLS(t, redis, &tls.Config{}, nil), "-connections", "5"}, nil, &out); err != nil {
		t.Fatal(err)
	}
	var p50, p90 float64
	if _, err := fmt.Sscanf(out.String(), "p50 %f\np90 %f\n", &p50, &p90); err != nil || p50 <= 0 || p90 < p50 {
		t.Errorf("output %q: %v", out.String(), err)
	}
	wrong, _ := pong(t, "-ERR \r\n")
	err := run(t.Context(), []string{"tls-first", "-addr", endTLS(t, wrong, &tls.Config{}, nil), "-connections", "5"}, nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "connection 1: ") {
		t.Errorf("a wrong answer: error %v", err)
	}
}

func TestTLSHandshakesAreAllTheSame(t *testing.T) {
	redis, _ := pong(t, pingAnswer)
	for name, config := range map[string]*tls.Config{
		"another version": {MaxVersion: tls.VersionTLS12},
		"another group":   {CurvePreferences: []tls.CurveID{tls.CurveP256}},
	} {
		addr := endTLS(t, redis, config, nil)
		if _, err := (tlsHandshakes{addr: addr, clients: 2, duration: 10 * time.Second}).run(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestTLSBulk(t *testing.T) {
	for _, up := range []bool{false, true} {
		t.Run(fmt.Sprintf("up %v", up), func(t *testing.T) {
			addr := endTLS(t, startStream(t, 1<<20), &tls.Config{}, nil)
			all, counted, err := tlsBulk{addr: addr, up: up, verify: 1 << 20, duration: 200 * time.Millisecond}.run()
			if err != nil {
				t.Fatal(err)
			}
			if counted <= 0 || counted > all || all < 1<<20 {
				t.Errorf("%d bytes, %d of them counted", all, counted)
			}
		})
	}
}

func TestTLSBulkNoticesWrongBytes(t *testing.T) {
	for _, up := range []bool{false, true} {
		t.Run(fmt.Sprintf("up %v", up), func(t *testing.T) {
			addr := endTLS(t, startStream(t, 1<<20), &tls.Config{}, func(p []byte) {
				if len(p) > 1000 { // neither the request nor the answer
					p[999]++
				}
			})
			_, _, err := tlsBulk{addr: addr, up: up, verify: 1 << 20, duration: 10 * time.Millisecond}.run()
			if err == nil || !strings.Contains(err.Error(), "wrong") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// What crypto/tls decrypts is what counting the records' headers must come to,
// wherever the reads are cut.
func TestRecords(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	r := &records{Conn: chopped{client}}
	cert := certificate(t)
	var sent int64
	var serving sync.WaitGroup
	serving.Go(func() {
		c := tls.Server(server, &tls.Config{Certificates: cert})
		for n := range 40 {
			if _, err := c.Write(make([]byte, n*n*n)); err != nil {
				t.Error(err)
			}
			sent += int64(n * n * n)
		}
		c.Close()
	})
	c := tls.Client(r, bulkConfig())
	n, err := io.Copy(io.Discard, c)
	serving.Wait()
	if err != nil || n != sent || r.payload != sent || !r.alert {
		t.Errorf("sent %d, decrypted %d, counted %d; the end was seen: %v; error %v", sent, n, r.payload, r.alert, err)
	}
	if r.watch([]byte("HTTP/1.1 400\r\n")); r.err == nil {
		t.Error("what is no record passes for one")
	}
}

// chopped hands out at most 7 bytes at a time.
type chopped struct{ net.Conn }

func (c chopped) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(7, len(p))]) }

func TestPatternEnd(t *testing.T) {
	p := streamPattern()
	at := int64(1000)
	part := bytes.Clone(p[at : at+5000])
	if got := patternEnd(part, at+int64(len(p))); got != len(part) {
		t.Errorf("only %d of %d bytes are right", got, len(part))
	}
	part[77]++
	if got := patternEnd(part, at); got != 77 {
		t.Errorf("the wrong byte is number %d, want 77", got)
	}
	if got := patternEnd(p[1:], 0); got != 0 {
		t.Errorf("%d bytes of a shifted stream are right", got)
	}
}
