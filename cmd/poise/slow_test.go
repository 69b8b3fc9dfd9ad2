package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// block is 261 kB that tell at every place where it is, 8 digits and a newline
// over and over: what streams send again and again.
var block = sync.OnceValue(func() (b []byte) {
	for i := range 29_000 {
		b = fmt.Appendf(b, "%08d\n", i)
	}
	return b
})

// pour writes blocks to c until it fails, counting bytes.
func pour(c net.Conn, sent *atomic.Int64) {
	for {
		n, err := c.Write(block())
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// sip reads n bytes of blocks and compares them.
func sip(c net.Conn, n int) error {
	got := make([]byte, len(block()))
	for read := 0; read < n; read += len(got) {
		if _, err := io.ReadFull(c, got); err != nil {
			return fmt.Errorf("after %d bytes: %w", read, err)
		}
		if !bytes.Equal(got, block()) {
			return fmt.Errorf("the bytes from %d on are not those that were sent", read)
		}
	}
	return nil
}

// inKernel is how much the buffers between two peers can hold at most: the
// sender's, those of the balancer, a pipe, and a little.
func inKernel(t *testing.T) (n int64) {
	t.Helper()
	limit := func(name string) (most int64) {
		b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var least, usual int64
		if _, err := fmt.Sscan(string(b), &least, &usual, &most); err != nil {
			t.Fatal(err)
		}
		return most
	}
	send, receive := limit("tcp_wmem"), limit("tcp_rmem")
	return send + receive + send + 2<<20
}

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
			// Who reads slowly has a small window from the handshake on.
			small := func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) {
					_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
				})
			}
			listener, dialer := net.ListenConfig{}, net.Dialer{Timeout: patience, Control: small}
			if mirror {
				listener, dialer = net.ListenConfig{Control: small}, net.Dialer{Timeout: patience}
			}
			l, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			serveOn(t, l, func(c net.Conn, done <-chan struct{}) {
				if mirror {
					arrived <- c.(*net.TCPConn)
					<-done
					return
				}
				pour(c, &sent)
			})
			listen := addr(t)
			p := start(t, webConfig(listen, "", "balance: round-robin, check: {type: none}", member("db1", l.Addr())))
			before := p.resident(t)

			var pouring sync.WaitGroup
			defer pouring.Wait()
			for range readers {
				conn, err := dialer.Dial("tcp", listen)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if mirror {
					pouring.Go(func() { pour(conn, &sent) })
					slow = append(slow, <-arrived)
				} else {
					slow = append(slow, conn.(*net.TCPConn))
				}
			}
			// Full is when nothing more goes for a while.
			last, since := int64(-1), time.Now()
			eventually(t, "the sending to stop", func() bool {
				if n := sent.Load(); n != last {
					last, since = n, time.Now()
				}
				return time.Since(since) > time.Second
			})
			grown := p.resident(t) - before
			t.Logf("%d MB sent, resident memory grew by %d kB", sent.Load()>>20, grown>>10)
			if n := sent.Load() / readers; n > inKernel(t) || n == 0 {
				t.Errorf("%d bytes a connection were sent to somebody who does not read", n)
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
					_ = c.SetDeadline(time.Now().Add(3 * patience))
					_ = c.SetReadBuffer(1 << 20) // or it takes all day
					if err := sip(c, n); err != nil {
						t.Error(err)
					}
				})
			}
			reading.Wait()
			if grown := p.resident(t) - before; grown > 20<<20 {
				t.Errorf("resident memory grew by %d bytes", grown)
			}
			for _, c := range slow {
				c.Close()
			}
			eventually(t, "the connections to end", func() bool { return p.Status(t).Connections == 0 })
		})
	}
}
