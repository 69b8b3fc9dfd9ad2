package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// pattern is a stream that tells at every place where it is: 8 digits and a
// newline for each 9 bytes.
type pattern struct{ at int64 }

const patternUnit = 9

// fill writes the next len(b) bytes of the stream.
func (p *pattern) fill(b []byte) {
	for n := 0; n < len(b); {
		unit := fmt.Appendf(nil, "%08d\n", p.at/patternUnit)
		m := copy(b[n:], unit[p.at%patternUnit:])
		n += m
		p.at += int64(m)
	}
}

// block is 9 kB of the pattern and the same for ever after: what many streams
// send without computing it.
var block = sync.OnceValue(func() []byte {
	b := make([]byte, 1000*patternUnit)
	(&pattern{}).fill(b)
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

// Case O-04: one side sends as fast as it can, the other does not read. What is
// under way stays in the kernel's buffers, and memory is bounded.
func TestSlowReaders(t *testing.T) {
	const readers, resume = 50, 4 << 20
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
			if n := sent.Load() / readers; n > 16<<20 || n == 0 {
				t.Errorf("%d bytes a connection were sent to somebody who does not read", n)
			}
			if grown > 20<<20 {
				t.Errorf("resident memory grew by %d bytes", grown)
			}

			var reading sync.WaitGroup
			for _, c := range slow {
				reading.Go(func() {
					_ = c.SetDeadline(time.Now().Add(3 * patience))
					_ = c.SetReadBuffer(1 << 20) // or it takes all day
					if err := sip(c, resume); err != nil {
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
