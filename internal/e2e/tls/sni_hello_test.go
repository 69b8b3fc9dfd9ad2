package tls

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// stuffed adds padding (extension 21, RFC 7685) to a ClientHello of one record, so that
// the message is n bytes long.
func stuffed(hello []byte, n int) []byte {
	const record, message = 5, 4
	body := slices.Clone(hello[record:])
	add := n - len(body)
	// The list of extensions is the last there is, its length comes before it.
	at := message + 2 + 32
	at += 1 + int(body[at])
	at += 2 + int(body[at])<<8 + int(body[at+1])
	at += 1 + int(body[at])
	list := len(body) - at - 2 + add
	body[at], body[at+1] = byte(list>>8), byte(list)
	body = append(body, 0, 21, byte((add-4)>>8), byte(add-4))
	body = append(body, make([]byte, add-4)...)
	list = len(body) - message
	body[1], body[2], body[3] = byte(list>>16), byte(list>>8), byte(list)
	return records(body, 16<<10)
}

// records puts a handshake message into records of so many bytes.
func records(message []byte, size int) (b []byte) {
	for part := range slices.Chunk(message, size) {
		b = append(b, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		b = append(b, part...)
	}
	return b
}

// A reshaper is a client's connection that sends the first of what it is given, the
// ClientHello, in another shape, and digests all that it sends.
type reshaper struct {
	net.Conn
	shape func(first []byte) (pieces [][]byte)

	mu   sync.Mutex
	sum  hash.Hash
	sent bool
}

func (r *reshaper) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pieces := [][]byte{b}
	if !r.sent {
		r.sent = true
		pieces = r.shape(b)
	}
	for _, p := range pieces {
		r.sum.Write(p)
		if _, err := r.Conn.Write(p); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// digest is that of all bytes sent so far.
func (r *reshaper) digest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%x", r.sum.Sum(nil))
}

// A digester is a server's connection that digests what is read of it.
type digester struct {
	net.Conn
	sum hash.Hash
}

func (d *digester) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	d.sum.Write(b[:n])
	return n, err
}

// tenant starts a backend that ends TLS for its own name, sends back a line, and tells
// of each connection the digest of the bytes it got.
func tenant(t testing.TB, a *rig.Authority, name string) (addr string, digests <-chan string) {
	t.Helper()
	ch := make(chan string, 100)
	config := rig.ServerConfig(a.Issue(t, name))
	addr = rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		d := &digester{c, sha256.New()}
		s := tls.Server(d, config)
		line := make([]byte, 6)
		if _, err := io.ReadFull(s, line); err == nil {
			_, _ = s.Write(line)
			_, _ = io.Copy(io.Discard, s)
		}
		_, _ = io.Copy(io.Discard, d)
		ch <- fmt.Sprintf("%x", d.sum.Sum(nil))
	})
	return addr, ch
}
