package tcp_test

import (
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/poise-lb/poise/l4/tcp"
)

// kernelMemory returns what the kernel holds in the TCP sockets of this process one
// end of which is bound to a port: received and not read, and not acknowledged or not
// sent, all with what packets cost besides their bytes. It counts the proxy's own
// sockets, of which a port of the listener or the backend is at one end, and not those
// of clients and backends, which have the same port at the other.
func kernelMemory(t *testing.T, listener, backend int) (sum int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	port := func(sa syscall.Sockaddr, err error) int {
		switch a := sa.(type) {
		case *syscall.SockaddrInet4:
			return a.Port
		case *syscall.SockaddrInet6:
			return a.Port
		}
		return -1
	}
	for _, f := range fds {
		fd, _ := strconv.Atoi(f.Name())
		if port(syscall.Getsockname(fd)) != listener && port(syscall.Getpeername(fd)) != backend {
			continue
		}
		const soMeminfo, received, queued = 55, 0, 5 // linux/sock_diag.h, SK_MEMINFO_*
		var info [9]uint32
		size := uint32(unsafe.Sizeof(info))
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, soMeminfo,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
			t.Fatal(errno)
		}
		sum += int(info[received] + info[queued])
	}
	return sum
}

// Clients that do not read, and those that begin to and then stop: a few may have what
// the kernel gives them, but what it holds for each of many is bounded, in plain TCP
// and with TLS on either side.
func TestStuckClientsHoldLittle(t *testing.T) {
	const (
		free    = 17 // one more than the kernel is left alone with
		clients = 8
		buffer  = 128 << 10
		// A buffer of unsent bytes and one of unread ones, whose packets cost up to
		// as much again.
		bound = 4 * buffer
	)
	for _, m := range modes[:4] {
		for what, first := range map[string]int64{"never reads": 0, "reads and stops": 4 << 20} {
			t.Run(m.name+" "+what, func(t *testing.T) {
				t.Parallel()
				var wrote atomic.Int64
				b := m.serve(t, func(e end) {
					for chunk := noise(64 << 10); ; {
						n, err := e.Write(chunk)
						wrote.Add(int64(n))
						if err != nil {
							return
						}
					}
				})
				p := startOn(t, 1, one(b), m.apply(t), func(r *tcp.Route) { r.Spec.Buffer = buffer })
				held := func(n int, first int64) int {
					for range n {
						c := m.client(t, p.dial())
						if h, ok := c.(interface{ Handshake() error }); ok {
							if err := h.Handshake(); err != nil {
								t.Fatal(err)
							}
						}
						if _, err := io.CopyN(io.Discard, c, first); err != nil {
							t.Fatal(err)
						}
					}
					before, stands := int64(-1), 0
					eventually(t, "the backends to be stopped", func() bool {
						time.Sleep(200 * time.Millisecond)
						now := wrote.Load()
						if stands++; now != before || now == 0 {
							stands = 0
						}
						before = now
						return stands >= 3 // a busy machine stops for a moment too
					})
					return kernelMemory(t, addrPort(p.addr), int(b.Addr.Port()))
				}
				few := held(free, 0)
				each := (held(clients, first) - few) / clients
				t.Logf("%d KiB each, and %d KiB for each of the first", each>>10, few/free>>10)
				if each > bound {
					t.Errorf("the kernel holds %d KiB for each of %d clients, want %d at most", each>>10, clients, bound>>10)
				}
			})
		}
	}
}

func addrPort(s string) int {
	_, port, _ := net.SplitHostPort(s)
	n, _ := strconv.Atoi(port)
	return n
}
