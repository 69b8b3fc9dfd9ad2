package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

// startServer runs a server of the tool's until the test ends, and returns where
// it is.
func startServer(t *testing.T, run func(ctx context.Context, ready func(netip.AddrPort)) error) netip.AddrPort {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	at := make(chan netip.AddrPort, 1)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, func(a netip.AddrPort) { at <- a }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	select {
	case a := <-at:
		return a
	case err := <-ended:
		ended <- nil
		t.Fatalf("the server did not start: %v", err)
		return netip.AddrPort{}
	}
}

func startEcho(t *testing.T, threads int, trains bool) netip.AddrPort {
	t.Helper()
	return startServer(t, func(ctx context.Context, ready func(netip.AddrPort)) error {
		return udpEcho{listen: anyPort, threads: threads, trains: trains, ready: ready}.run(ctx)
	})
}

// answerDatagrams is a server that calls answer for each datagram.
func answerDatagrams(t *testing.T, answer func(c *net.UDPConn, from netip.AddrPort, p []byte)) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(anyPort))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for buf := make([]byte, maxDatagram); ; {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			answer(c, from, buf[:n])
		}
	})
	t.Cleanup(func() {
		c.Close()
		serving.Wait()
	})
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// shortUDPRate is patient enough for a busy machine.
func shortUDPRate(addr netip.AddrPort) udpRate {
	return udpRate{
		addr: addr, clients: 4, outstanding: 8, size: 64,
		warm: 20 * time.Millisecond, duration: 200 * time.Millisecond, timeout: 20 * time.Second,
	}
}

func TestUDPRate(t *testing.T) {
	for _, echoTrains := range []bool{false, true} {
		for _, trains := range []bool{false, true} {
			t.Run(fmt.Sprintf("echo joins %v, load joins %v", echoTrains, trains), func(t *testing.T) {
				u := shortUDPRate(startEcho(t, 2, echoTrains))
				u.trains, u.threads = trains, 2
				r, err := u.run()
				if err != nil {
					t.Fatal(err)
				}
				if r.lost != 0 || len(r.latencies) > r.requests || r.requests < u.clients*u.outstanding {
					t.Errorf("%d requests, %d answers that count, %d lost", r.requests, len(r.latencies), r.lost)
				}
			})
		}
	}
}

func TestUDPRateCountsLosses(t *testing.T) {
	var seen int
	addr := answerDatagrams(t, func(c *net.UDPConn, from netip.AddrPort, p []byte) {
		if seen++; seen%10 != 0 {
			_, _ = c.WriteToUDPAddrPort(p, from)
			_, _ = c.WriteToUDPAddrPort(p, from) // a duplicate is no answer
		}
	})
	u := shortUDPRate(addr)
	u.timeout = 100 * time.Millisecond
	r, err := u.run()
	if err != nil {
		t.Fatal(err)
	}
	if r.lost < r.requests/10 || r.lost > r.requests-len(r.latencies) {
		t.Errorf("%d of %d requests lost, %d answered: every tenth was dropped", r.lost, r.requests, len(r.latencies))
	}
}

func TestUDPRateNoticesMixedUpClients(t *testing.T) {
	var last netip.AddrPort
	addr := answerDatagrams(t, func(c *net.UDPConn, from netip.AddrPort, p []byte) {
		if last.IsValid() {
			_, _ = c.WriteToUDPAddrPort(p, last)
		}
		last = from
	})
	if _, err := shortUDPRate(addr).run(); err == nil || !strings.Contains(err.Error(), "an answer to client") {
		t.Errorf("error %v", err)
	}
}

func TestUDPRateNoticesWrongSizes(t *testing.T) {
	addr := answerDatagrams(t, func(c *net.UDPConn, from netip.AddrPort, p []byte) {
		_, _ = c.WriteToUDPAddrPort(append(p, 0), from)
	})
	if _, err := shortUDPRate(addr).run(); err == nil || !strings.Contains(err.Error(), "65 bytes") {
		t.Errorf("error %v", err)
	}
}

func TestUDPRateNoticesThatNobodyListens(t *testing.T) {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(anyPort))
	if err != nil {
		t.Fatal(err)
	}
	addr := c.LocalAddr().(*net.UDPAddr).AddrPort()
	c.Close()
	if _, err := shortUDPRate(addr).run(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
}

// relayDatagrams is a one-way proxy; keep says which datagrams it forwards.
func relayDatagrams(t *testing.T, to netip.AddrPort, keep func(n int) bool) netip.AddrPort {
	t.Helper()
	out, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	n := 0
	return answerDatagrams(t, func(_ *net.UDPConn, _ netip.AddrPort, p []byte) {
		if n++; keep(n) {
			_, _ = out.Write(p)
		}
	})
}

// freeUDP returns an address that was free a moment ago, and stays so: nothing
// else uses that host.
func freeUDP(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 88, 17, 3)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestUDPBlast(t *testing.T) {
	for _, trains := range []bool{false, true} {
		for _, perSec := range []float64{0, 2000} {
			t.Run(fmt.Sprintf("joined %v, %v/s", trains, perSec), func(t *testing.T) {
				sink := freeUDP(t)
				r, err := udpBlast{
					addr: sink, sink: sink, sockets: 3, size: 100, window: 100, trains: trains, perSec: perSec,
					warm: 20 * time.Millisecond, duration: 200 * time.Millisecond,
				}.run()
				if err != nil {
					t.Fatal(err)
				}
				if r.lost != 0 || r.delivered != r.sent || r.counted > r.delivered {
					t.Errorf("%d left, %d arrived, %d of them counted, %d lost", r.sent, r.delivered, r.counted, r.lost)
				}
				if perSec > 0 && r.sent > 440 {
					t.Errorf("%d left in 220 ms at %v a second", r.sent, perSec)
				}
			})
		}
	}
}

func TestUDPBlastCountsLosses(t *testing.T) {
	sink := freeUDP(t)
	addr := relayDatagrams(t, sink, func(n int) bool { return n%4 != 0 })
	r, err := udpBlast{addr: addr, sink: sink, sockets: 1, size: 100, window: 16, duration: 300 * time.Millisecond}.run()
	if err != nil {
		t.Fatal(err)
	}
	if r.sent != r.delivered+r.lost || r.lost < r.sent/4 {
		t.Errorf("%d left, %d arrived, %d lost: every fourth was dropped", r.sent, r.delivered, r.lost)
	}
}

func TestUDPBlastNoticesWhatIsWrong(t *testing.T) {
	sink := freeUDP(t)
	short := udpBlast{sink: sink, sockets: 1, size: 100, window: 16, duration: 100 * time.Millisecond}
	short.addr = relayDatagrams(t, sink, func(int) bool { return false })
	if _, err := short.run(); err == nil || !strings.Contains(err.Error(), "arrived") {
		t.Errorf("error %v when none arrives", err)
	}
	out, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(sink))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	short.addr = answerDatagrams(t, func(_ *net.UDPConn, _ netip.AddrPort, p []byte) { _, _ = out.Write(p[1:]) })
	if _, err := short.run(); err == nil || !strings.Contains(err.Error(), "99 bytes") {
		t.Errorf("error %v when a byte is missing", err)
	}
}

func TestUDPCommands(t *testing.T) {
	echo := startEcho(t, 1, false)
	var out bytes.Buffer
	var rate, p50, p99 float64
	var requests, lost int
	err := run(t.Context(), []string{"udp-rate", "-addr", echo.String(), "-warm", "10ms", "-duration", "100ms"}, nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(out.String(), "rate %f\nrequests %d\nlost %d\np50 %f\np99 %f\n", &rate, &requests, &lost, &p50, &p99); err != nil || rate <= 0 || p99 < p50 {
		t.Errorf("output %q: %v", out.String(), err)
	}
	out.Reset()
	sink := freeUDP(t).String()
	err = run(t.Context(), []string{"udp-blast", "-addr", sink, "-sink", sink, "-warm", "10ms", "-duration", "100ms"}, nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	var sent, delivered int
	if _, err := fmt.Sscanf(out.String(), "rate %f\nsent %d\ndelivered %d\nlost %d\n", &rate, &sent, &delivered, &lost); err != nil || rate <= 0 {
		t.Errorf("output %q: %v", out.String(), err)
	}
}
