package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unavailable ends a test that cannot run here.
func unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("POISE_TEST_ALL") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// webConfig is a configuration of one service, web, over one pool, web. Service
// and pool are further keys in YAML's flow style, "" for none.
func webConfig(listen, service, pool string, backends ...string) string {
	keys := func(s string) string {
		if s == "" {
			return ""
		}
		return s + ", "
	}
	return fmt.Sprintf("services:\n  web: {%slisten: [%q], pool: web}\npools:\n  web: {%sbackends: [%s]}\n",
		keys(service), listen, keys(pool), strings.Join(backends, ", "))
}

// twoServices is a configuration of the services one and two over a pool each of
// one backend, without checks. Service is a further key of both, "" for none.
func twoServices(one, two, service, addrOne, addrTwo string) string {
	return fmt.Sprintf(`
defaults: {services: {%s}, pools: {balance: first, check: {type: none}}}
services:
  one: {listen: [%q], pool: one}
  two: {listen: [%q], pool: two}
pools:
  one: {backends: [%s]}
  two: {backends: [%s]}
`, service, one, two, member("db1", addrOne), member("db1", addrTwo))
}

// member is a backend of webConfig; more is further keys such as "weight: 0".
func member(name string, address any, more ...string) string {
	keys := append([]string{"name: " + name, fmt.Sprintf("address: %q", fmt.Sprint(address))}, more...)
	return "{" + strings.Join(keys, ", ") + "}"
}

// serve starts a backend that runs handle for every connection and closes it
// afterwards. Done is closed when the test ends, and so are the connections.
func serve(t testing.TB, handle func(c *net.TCPConn, done <-chan struct{})) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, func(c net.Conn, done <-chan struct{}) { handle(c.(*net.TCPConn), done) })
	return l.Addr().String()
}

// serveOn is serve on a listener, which it takes.
func serveOn(t testing.TB, l net.Listener, handle func(c net.Conn, done <-chan struct{})) {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	done := make(chan struct{})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			running.Go(func() {
				handle(c, done)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		close(done)
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
}

// swallow makes addr, where nobody listens, swallow SYNs until the listener it
// returns is closed: who connects hears nothing at all, as from a host that is
// off.
func swallow(addr netip.AddrPort) (io.Closer, error) {
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0} // keep 0 bytes of whatever comes
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var inner error
		err := c.Control(func(fd uintptr) {
			inner = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
		})
		return errors.Join(err, inner)
	}}
	config.SetMultipathTCP(false) // such a socket takes no filter
	return config.Listen(context.Background(), "tcp", addr.String())
}

// mute has an address swallow SYNs for the length of the test.
func mute(t testing.TB, addr netip.AddrPort) {
	t.Helper()
	l, err := swallow(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// muteAddr returns an address that is mute for the length of the test.
func muteAddr(t testing.TB) string {
	t.Helper()
	a := netip.MustParseAddrPort(addr(t))
	mute(t, a)
	return a.String()
}

// reset closes c in a way that its peer sees as a reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// connect dials a bare connection for the length of the test, at most.
func connect(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// sockets returns the states of the TCP sockets that a balancer which listens at
// listen has, or has left to the kernel: its ends of connections with clients and
// with backends. Those in TIME-WAIT, an orderly end, and the listener are left
// out.
func sockets(t testing.TB, listen string, backends ...string) (list []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const timeWait, listening = "06", "0A" // include/net/tcp_states.h
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // sl local remote state ...
		if f[0] == "sl" || f[3] == timeWait || f[3] == listening {
			continue
		}
		if f[1] == procAddr(listen) || slices.ContainsFunc(backends, func(b string) bool { return f[2] == procAddr(b) }) {
			list = append(list, fmt.Sprintf("%s -> %s in state %s", f[1], f[2], f[3]))
		}
	}
	return list
}

// procAddr is an IPv4 address as /proc/net/tcp writes it: a little-endian word.
func procAddr(addr string) string {
	a := netip.MustParseAddrPort(addr)
	b := a.Addr().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}
