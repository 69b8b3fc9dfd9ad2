package rig

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// Block is 261 kB that tell at every place where it is, 8 digits and a newline
// over and over: what streams send again and again.
var Block = sync.OnceValue(func() (b []byte) {
	for i := range 29_000 {
		b = fmt.Appendf(b, "%08d\n", i)
	}
	return b
})

// Pour writes blocks to c until it fails, counting bytes.
func Pour(c net.Conn, sent *atomic.Int64) {
	for {
		n, err := c.Write(Block())
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// Sip reads n bytes of blocks and compares them.
func Sip(c net.Conn, n int) error {
	got := make([]byte, len(Block()))
	for read := 0; read < n; read += len(got) {
		if _, err := io.ReadFull(c, got); err != nil {
			return fmt.Errorf("after %d bytes: %w", read, err)
		}
		if !bytes.Equal(got, Block()) {
			return fmt.Errorf("the bytes from %d on are not those that were sent", read)
		}
	}
	return nil
}

// KernelBuffers is how much the buffers between two peers can hold at most: the
// sender's, those of the balancer, a pipe, and a little.
func KernelBuffers(t *testing.T) (n int64) {
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
