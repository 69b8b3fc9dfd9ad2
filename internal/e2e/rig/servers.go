package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/loadgen"
)

// Backend starts a demonstration backend for the length of the test.
func Backend(t testing.TB, name string, how loadgen.Behaviour) *loadgen.Backend {
	t.Helper()
	b, err := loadgen.NewBackend(name, "", how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// ThreeBackends starts three equal backends.
func ThreeBackends(t *testing.T) (list [3]*loadgen.Backend) {
	t.Helper()
	for i := range list {
		list[i] = Backend(t, fmt.Sprintf("db%d", i+1), loadgen.Behaviour{})
	}
	return list
}

// Serve starts a backend that runs handle for every connection and closes it
// afterwards. Done is closed when the test ends, and so are the connections.
func Serve(t testing.TB, handle func(c *net.TCPConn, done <-chan struct{})) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ServeOn(t, l, func(c net.Conn, done <-chan struct{}) { handle(c.(*net.TCPConn), done) })
	return l.Addr().String()
}

// ServeOn is Serve on a listener, which it takes.
func ServeOn(t testing.TB, l net.Listener, handle func(c net.Conn, done <-chan struct{})) {
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

// SwallowSYNs makes addr, where nothing listens, swallow SYNs until the listener it
// returns is closed: a client that connects gets no answer, as from a host that is
// off.
func SwallowSYNs(addr netip.AddrPort) (io.Closer, error) {
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

// Mute has an address swallow SYNs for the length of the test.
func Mute(t testing.TB, addr netip.AddrPort) {
	t.Helper()
	l, err := SwallowSYNs(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// MuteAddr returns an address that is mute for the length of the test.
func MuteAddr(t testing.TB) string {
	t.Helper()
	a := netip.MustParseAddrPort(Addr(t))
	Mute(t, a)
	return a.String()
}
