package tcp

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Case O-04: one side sends as fast as it can, the other does not read. What is
// under way stays in the kernel's buffers, and memory is bounded.
func TestSlowReaders(t *testing.T) {
	const readers = 50
	for _, mirror := range []bool{false, true} {
		name := "client"
		if mirror {
			name = "backend"
		}
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			var slow []*net.TCPConn
			arrived := make(chan *net.TCPConn, readers)
			// A slow reader has a small window from the handshake on.
			small := func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) {
					_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
				})
			}
			listener, dialer := net.ListenConfig{}, net.Dialer{Timeout: rig.Patience, Control: small}
			if mirror {
				listener, dialer = net.ListenConfig{Control: small}, net.Dialer{Timeout: rig.Patience}
			}
			l, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			rig.ServeOn(t, l, func(c net.Conn, done <-chan struct{}) {
				if mirror {
					arrived <- c.(*net.TCPConn)
					<-done
					return
				}
				rig.Pour(c, &sent)
			})
			listen := rig.Addr(t)
			p := rig.Start(t, rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}", rig.Member("db1", l.Addr())))
			before := p.Resident(t)

			var pouring sync.WaitGroup
			defer pouring.Wait()
			for range readers {
				conn, err := dialer.Dial("tcp", listen)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if mirror {
					pouring.Go(func() { rig.Pour(conn, &sent) })
					slow = append(slow, <-arrived)
				} else {
					slow = append(slow, conn.(*net.TCPConn))
				}
			}
			// Full is when nothing more goes for a while.
			last, since := int64(-1), time.Now()
			rig.Eventually(t, "the sending to stop", func() bool {
				if n := sent.Load(); n != last {
					last, since = n, time.Now()
				}
				return time.Since(since) > time.Second
			})
			grown := p.Resident(t) - before
			t.Logf("%d MB sent, resident memory grew by %d kB", sent.Load()>>20, grown>>10)
			if n := sent.Load() / readers; n > rig.KernelBuffers(t) || n == 0 {
				t.Errorf("%d bytes a connection were sent to a side that does not read", n)
			}
			if grown > 20<<20 {
				t.Errorf("resident memory grew by %d bytes", grown)
			}

			// All go on, and some read so much that the stream has to flow again.
			much := 2 * int(sent.Load()) / readers
			var reading sync.WaitGroup
			for i, c := range slow {
				n := 1 << 20
				if i < 5 {
					n = much
				}
				reading.Go(func() {
					_ = c.SetDeadline(time.Now().Add(3 * rig.Patience))
					_ = c.SetReadBuffer(1 << 20) // or it takes all day
					if err := rig.Sip(c, n); err != nil {
						t.Error(err)
					}
				})
			}
			reading.Wait()
			if grown := p.Resident(t) - before; grown > 20<<20 {
				t.Errorf("resident memory grew by %d bytes", grown)
			}
			for _, c := range slow {
				c.Close()
			}
			rig.Eventually(t, "the connections to end", func() bool { return p.Status(t).Connections == 0 })
		})
	}
}
