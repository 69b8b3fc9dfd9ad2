package tlsio_test

import (
	"bytes"
	"crypto/tls"
	"io"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

func echoing(d *driven) { d.echoes = true }

// A dribble writes in pieces of random sizes.
type dribble struct{ net.Conn }

func (c dribble) Write(b []byte) (n int, err error) {
	for n < len(b) {
		m, err := c.Conn.Write(b[n:min(len(b), n+1+mathrand.IntN(20_000))])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func noise(n int) []byte {
	b := make([]byte, n)
	mathrand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// Whatever sizes things have, they come back as they were, and so does the end.
func TestEcho(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			d, peer := drive(t, serverConfig(version), nil, echoing)
			c := tls.Client(dribble{peer}, clientConfig())
			data := noise(4<<20 + 1)
			go func() {
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 1+mathrand.IntN(1<<mathrand.IntN(18)))
					if _, err := c.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				c.CloseWrite()
			}()
			var got bytes.Buffer
			buf := make([]byte, 100_000)
			for {
				n, err := c.Read(buf[:1+mathrand.IntN(len(buf))])
				got.Write(buf[:n])
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got.Bytes(), data) {
				t.Errorf("%d bytes of %d came back, or others", got.Len(), len(data))
			}
			handshaken(t, d)
			wait(t, "the end", d.ended)
			if _, end := d.received(); end != 0 {
				t.Errorf("the end is %v", end)
			}
			d.do(func() {
				if d.Truncated() || d.Pending() {
					t.Errorf("truncated %v, pending %v", d.Truncated(), d.Pending())
				}
				if d.State().Version != version {
					t.Errorf("version %#x", d.State().Version)
				}
			})
		})
	}
}

// What was read before the handshake began is its beginning, wherever that was cut.
func TestReceivedBefore(t *testing.T) {
	for _, cut := range []int{0, 1, 5, 6, 100, 1 << 20} {
		a, b := net.Pipe()
		c := tls.Client(a, clientConfig())
		done := make(chan error, 1)
		go func() { done <- c.Handshake() }()
		first := make([]byte, 5)
		io.ReadFull(b, first)
		hello := make([]byte, int(first[3])<<8|int(first[4]))
		io.ReadFull(b, hello)
		hello = append(first, hello...)
		cut = min(cut, len(hello))
		d, peer := drive(t, serverConfig(tls.VersionTLS13), hello[:cut], echoing)
		peer.Write(hello[cut:])
		var both sync.WaitGroup
		both.Go(func() { io.Copy(peer, b); peer.CloseWrite() })
		both.Go(func() { io.Copy(b, peer) })
		if err := <-done; err != nil {
			t.Errorf("cut at %d: %v", cut, err)
		}
		handshaken(t, d)
		c.Write([]byte("hello"))
		if _, err := io.ReadFull(c, hello[:5]); err != nil || string(hello[:5]) != "hello" {
			t.Errorf("cut at %d: %v", cut, err)
		}
		a.Close()
		b.Close()
		peer.Close()
		both.Wait()
	}
}

// Data that comes with the last of the handshake, and the end with it.
func TestDataWithFinished(t *testing.T) {
	for range 30 {
		d, peer := drive(t, serverConfig(tls.VersionTLS13), nil)
		c := tls.Client(&corked{Conn: peer}, clientConfig())
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		c.Write(noise(5000))
		c.CloseWrite()
		c.NetConn().(*corked).flush()
		peer.CloseWrite()
		handshaken(t, d)
		wait(t, "the end", d.ended)
		if got, end := d.received(); !bytes.Equal(got, noise(5000)) || end != 0 {
			t.Fatalf("%d bytes, then %v", len(got), end)
		}
	}
}

// A corked connection keeps what is written after the first read, a client's
// handshake but the hello, until it is flushed.
type corked struct {
	net.Conn
	read bool
	kept []byte
}

func (c *corked) Read(b []byte) (int, error) {
	c.read = true
	return c.Conn.Read(b)
}

func (c *corked) Write(b []byte) (int, error) {
	if !c.read {
		return c.Conn.Write(b)
	}
	c.kept = append(c.kept, b...)
	return len(b), nil
}

func (c *corked) flush() {
	c.SetWriteDeadline(time.Time{}) // crypto/tls has set one with its close_notify
	c.Conn.Write(c.kept)
}

// A flight that is longer than what is read ahead.
func TestLongFlight(t *testing.T) {
	config := serverConfig(tls.VersionTLS13)
	config.ClientAuth = tls.RequireAnyClientCert
	d, peer := drive(t, config, nil, echoing)
	long := certificate()
	for range 300 {
		long.Certificate = append(long.Certificate, long.Certificate[0])
	}
	client := clientConfig()
	client.Certificates = []tls.Certificate{long}
	c := tls.Client(peer, client)
	c.Write([]byte("hello"))
	handshaken(t, d)
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}

// How the peer's stream ends is told apart.
func TestEnds(t *testing.T) {
	for name, version := range versions {
		for what, c := range map[string]struct {
			do        func(*tls.Conn, *net.TCPConn)
			end       sock.Errno
			truncated bool
		}{
			"close_notify":             {func(c *tls.Conn, _ *net.TCPConn) { c.CloseWrite() }, 0, false},
			"close_notify and FIN":     {func(c *tls.Conn, p *net.TCPConn) { c.CloseWrite(); p.CloseWrite() }, 0, false},
			"FIN":                      {func(_ *tls.Conn, p *net.TCPConn) { p.CloseWrite() }, 0, true},
			"FIN in a record's header": {func(_ *tls.Conn, p *net.TCPConn) { p.Write([]byte{23, 3}); p.CloseWrite() }, sock.ECONNRESET, true},
			"FIN in a record":          {func(_ *tls.Conn, p *net.TCPConn) { p.Write([]byte{23, 3, 3, 0, 9, 1}); p.CloseWrite() }, sock.ECONNRESET, true},
			"reset":                    {func(_ *tls.Conn, p *net.TCPConn) { p.SetLinger(0); p.Close() }, sock.ECONNRESET, false},
			"nonsense":                 {func(_ *tls.Conn, p *net.TCPConn) { p.Write([]byte("nonsense")) }, sock.EPROTO, false},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				d, peer := drive(t, serverConfig(version), nil)
				e := tls.Client(peer, clientConfig())
				e.Write([]byte("hello"))
				handshaken(t, d)
				eventually(t, "the bytes", func() bool { got, _ := d.received(); return string(got) == "hello" })
				c.do(e, peer)
				wait(t, "the end", d.ended)
				if got, end := d.received(); string(got) != "hello" || end != c.end {
					t.Errorf("%q, then %v, want %v", got, end, c.end)
				}
				d.do(func() {
					if d.Truncated() != c.truncated {
						t.Errorf("truncated is %v", d.Truncated())
					}
					if (d.Err() != nil) != (c.end == sock.EPROTO) {
						t.Errorf("error %v", d.Err())
					}
				})
				if c.end == sock.EPROTO { // the peer is told
					if _, err := io.Copy(io.Discard, e); err == nil || !strings.Contains(err.Error(), "remote error") {
						t.Errorf("the peer sees %v", err)
					}
				}
			})
		}
	}
}

// A peer that does not read stops the writing, which takes nothing more; later it
// gets everything.
func TestPeerThatDoesNotRead(t *testing.T) {
	d, peer := drive(t, serverConfig(tls.VersionTLS13), nil)
	c := tls.Client(peer, clientConfig())
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	handshaken(t, d)
	chunk, sent := noise(64<<10), 0
	d.do(func() {
		for {
			n, errno := d.Write(chunk)
			if sent += n; errno != 0 {
				if errno != sock.EAGAIN || n != len(chunk) || !d.Pending() {
					t.Errorf("%d bytes, %v, pending %v", n, errno, d.Pending())
				}
				break
			}
			if sent > 64<<20 {
				t.Error("it never stops")
				break
			}
		}
		if n, errno := d.Write(chunk); n != 0 || errno != sock.EAGAIN {
			t.Errorf("%d bytes more, %v", n, errno)
		}
		d.fin = true
	})
	before := d.turns.Load()
	time.Sleep(100 * time.Millisecond)
	if n := d.turns.Load() - before; n > 5 {
		t.Errorf("%d turns while nothing can move", n)
	}
	if n, err := io.Copy(io.Discard, c); n != int64(sent) || err != nil {
		t.Errorf("%d of %d bytes, %v", n, sent, err)
	}
}

// Aborted at any moment, a handshake leaves no goroutine and calls nobody.
func TestAbort(t *testing.T) {
	for i := range 100 {
		d, peer := drive(t, serverConfig(tls.VersionTLS12+uint16(i%2)), nil)
		done := make(chan error, 1)
		go func() { done <- tls.Client(peer, clientConfig()).Handshake() }()
		time.Sleep(time.Duration(mathrand.IntN(4000)) * time.Microsecond)
		d.do(func() {
			d.close()
			if d.Pending() {
				t.Error("something is pending")
			}
		})
		peer.Close()
		<-done
		over := len(d.over)
		d.do(func() {})
		if len(d.over) != over {
			t.Error("a handshake ends that was aborted")
		}
	}
}

// A handshake that fails tells the peer why.
func TestHandshakeFails(t *testing.T) {
	d, peer := drive(t, serverConfig(tls.VersionTLS13), nil)
	config := clientConfig()
	config.MaxVersion = tls.VersionTLS12
	if err := tls.Client(peer, config).Handshake(); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("the peer is told %v", err)
	}
	if err := <-d.over; err == nil {
		t.Error("it has succeeded")
	}
}

// What comes in the middle of a handshake ends it.
func TestHandshakeCutShort(t *testing.T) {
	for what, do := range map[string]func(*net.TCPConn){
		"FIN":      func(c *net.TCPConn) { c.CloseWrite() },
		"reset":    func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
		"nonsense": func(c *net.TCPConn) { c.Write(make([]byte, 200_000)) },
	} {
		d, peer := drive(t, serverConfig(tls.VersionTLS13), []byte{22, 3, 1, 1})
		do(peer)
		select {
		case err := <-d.over:
			if err == nil {
				t.Errorf("%s: it has succeeded", what)
			}
		case <-time.After(patience):
			t.Fatalf("%s: it does not end", what)
		}
	}
}

// Keys are updated as often as the peer likes, as long as it reads the answers.
func TestKeyUpdates(t *testing.T) {
	d, peer := drive(t, serverConfig(tls.VersionTLS13), nil, echoing)
	e, w := takeOver(t, peer)
	handshaken(t, d)
	buf := make([]byte, 5)
	for range 300 {
		peer.Write(append(w.update(), w.data("hello")...))
		if _, err := io.ReadFull(e, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	// The answer goes out by itself.
	before := d.turns.Load()
	peer.Write(w.update())
	eventually(t, "the update to be read", func() bool { return d.turns.Load() > before })
	d.do(func() {
		if d.Pending() {
			t.Error("the answer is left")
		}
	})
	// After our end there is none, and it is no error.
	d.do(func() { d.echoes, d.fin = false, true; d.move() })
	if n, err := e.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
	peer.Write(append(append(w.update(), w.data("more")...), w.closeNotify()...))
	wait(t, "the end", d.ended)
	if _, end := d.received(); end != 0 {
		t.Errorf("the end is %v", end)
	}
}

// A peer that has us owe it more and more answers is done with.
func TestKeyUpdateFlood(t *testing.T) {
	d, peer := drive(t, serverConfig(tls.VersionTLS13), nil, func(d *driven) { d.greedy = true })
	d.do(func() { syscall.SetsockoptInt(d.fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<10) })
	_, w := takeOver(t, peer)
	handshaken(t, d)
	ended := func() bool {
		select {
		case <-d.ended:
			return true
		default:
			return false
		}
	}
	for i := 0; i < 60_000 && !ended(); i++ {
		if _, err := peer.Write(append(w.update(), w.data("x")...)); err != nil {
			break
		}
	}
	wait(t, "the end", d.ended)
	if _, end := d.received(); end != sock.EPROTO {
		t.Errorf("the end is %v", end)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}
