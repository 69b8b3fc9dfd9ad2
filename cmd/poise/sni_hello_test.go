package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// clientHello returns what a client of crypto/tls begins with, one record.
func clientHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	var b recorder
	if err := tls.Client(&b, config).Handshake(); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	return b.written
}

// A recorder is a connection that takes what is written and ends.
type recorder struct {
	net.Conn
	written []byte
}

var errRecorded = errors.New("recorded")

func (r *recorder) Write(b []byte) (int, error) {
	r.written = append(r.written, b...)
	return len(b), nil
}

func (r *recorder) Read([]byte) (int, error) { return 0, errRecorded }

// helloFor is the ClientHello for a name as it is, which crypto/tls would not ask for
// if it is an address or ends in a dot.
func helloFor(t testing.TB, name string, alpn ...string) []byte {
	t.Helper()
	if name == "" {
		return clientHello(t, &tls.Config{InsecureSkipVerify: true, NextProtos: alpn})
	}
	stand := strings.Repeat("x", len(name))
	b := clientHello(t, &tls.Config{ServerName: stand, NextProtos: alpn})
	if bytes.Count(b, []byte(stand)) != 1 {
		t.Fatal("the name is not in the ClientHello")
	}
	return bytes.Replace(b, []byte(stand), []byte(name), 1)
}

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
func tenant(t testing.TB, a *authority, name string) (addr string, digests <-chan string) {
	t.Helper()
	ch := make(chan string, 100)
	config := shows(a.issue(t, name))
	addr = serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
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

// named starts a backend that answers a whole connection with its name and the digest
// of what it got.
func named(t testing.TB, name string) (addr string) {
	t.Helper()
	return serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		got, err := io.ReadAll(c)
		if err == nil {
			fmt.Fprintf(c, "%s %x", name, sha256.Sum256(got))
		}
	})
}

// reaches sends bytes, whole, and returns the name of the backend that got all of them
// and nothing else; "" if the connection was closed.
func reaches(t testing.TB, listen string, b []byte) string {
	t.Helper()
	r := say(t, connect(t, listen), 0, string(b))
	if r.got == "" && !isTimeout(r.err) {
		return ""
	}
	name, digest, _ := strings.Cut(r.got, " ")
	if want := fmt.Sprintf("%x", sha256.Sum256(b)); r.err != nil || digest != want {
		t.Errorf("%s got something else: %q, %v", name, r.got, r.err)
	}
	return name
}
