package tcp_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

func TestEcho(t *testing.T) {
	p := start(t, one(echo(t)))
	c := p.dial()
	for range 3 {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	c.CloseWrite()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
	s := p.outcome(l4.OK)
	if s.BytesIn != 15 || s.BytesOut != 15 {
		t.Errorf("%d bytes in, %d out", s.BytesIn, s.BytesOut)
	}
	if s.Flow.Client.String() != c.LocalAddr().String() || s.Flow.VIP.String() != p.addr {
		t.Errorf("flow %v", s.Flow)
	}
	if s.Connect < 0 || s.Wait < 0 || s.FirstByte < 0 || s.Total < s.FirstByte {
		t.Errorf("times %v %v %v %v", s.Wait, s.Connect, s.FirstByte, s.Total)
	}
	if s.ActConn != 1 || s.SvcConn != 1 || s.PoolConn != 1 || s.BackendConn != 1 {
		t.Errorf("counts %d %d %d %d, itself included", s.ActConn, s.SvcConn, s.PoolConn, s.BackendConn)
	}
}

// noise returns n bytes that compress and repeat nowhere.
func noise(n int) []byte {
	b := make([]byte, n)
	var seed [32]byte
	seed[0] = byte(n)
	rand.NewChaCha8(seed).Read(b)
	return b
}

// Every size around the buffer's, both ways, written in odd pieces: bytes arrive
// as they were sent, whichever of copying and splicing moved them.
func TestSizesBothWays(t *testing.T) {
	for _, unix := range []bool{false, true} {
		var b balance.BackendSpec
		if unix {
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			b = serveOn(t, l, func(c net.Conn) {
				io.Copy(c, c)
				c.(*net.UnixConn).CloseWrite()
			})
		} else {
			b = echo(t)
		}
		p := start(t, one(b))
		for _, size := range []int{0, 1, 4095, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 9<<20 + 7} {
			data := noise(size)
			c := p.dial()
			go func() {
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 1+rand.IntN(200_000))
					if _, err := c.Write(rest[:n]); err != nil {
						t.Errorf("size %d: %v", size, err)
						return
					}
					rest = rest[n:]
				}
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("unix %v, size %d: %d bytes back, %v", unix, size, len(got), err)
			}
		}
	}
}

// O-01: a FIN ends one direction only, and promptly.
func TestHalfCloseFromClient(t *testing.T) {
	for name, listen := range map[string]func() (net.Listener, error){
		"tcp":  func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		"unix": func() (net.Listener, error) { return net.Listen("unix", filepath.Join(t.TempDir(), "s")) },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := listen()
			if err != nil {
				t.Fatal(err)
			}
			sawEOF := make(chan []byte, 1)
			proceed := make(chan struct{})
			b := serveOn(t, l, func(c net.Conn) {
				request, _ := io.ReadAll(c)
				sawEOF <- request
				<-proceed
				c.Write(bytes.Repeat([]byte("R"), 204_800))
			})
			p := start(t, one(b))
			c := p.dial()
			c.Write([]byte("PING\n"))
			c.CloseWrite()
			if got := <-sawEOF; string(got) != "PING\n" {
				t.Errorf("the backend got %q", got)
			}
			close(proceed)
			got, err := io.ReadAll(c)
			if err != nil || len(got) != 204_800 {
				t.Errorf("the client got %d bytes, %v", len(got), err)
			}
			p.outcome(l4.OK)
		})
	}
}

// O-01 (b): the mirror image.
func TestHalfCloseFromBackend(t *testing.T) {
	received := make(chan int64, 1)
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		c.Write([]byte("0123456789"))
		c.CloseWrite()
		n, _ := io.Copy(io.Discard, c)
		received <- n
	})))
	c := p.dial()
	if got, err := io.ReadAll(c); len(got) != 10 || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := c.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n := <-received; n != 1<<20 {
		t.Errorf("the backend got %d bytes", n)
	}
	p.outcome(l4.OK)
}

// O-02: after one side has ended the other is held to making progress, and
// nothing else.
func TestHalfCloseTimeout(t *testing.T) {
	p := start(t, one(serve(t, func(c *net.TCPConn) { time.Sleep(3 * time.Second) })), func(r *tcp.Route) {
		r.Spec.HalfClose = 500 * time.Millisecond
	})
	base := descriptors(t)
	const n = 100
	for range n {
		c := p.dial()
		c.Write(make([]byte, 10))
		c.Close()
	}
	for _, s := range p.ended(n) {
		if s.Outcome != l4.HalfCloseTimeout || s.By != l4.Backend {
			t.Fatalf("outcome %v by %v", s.Outcome, s.By)
		}
	}
	eventually(t, "descriptors to be freed", func() bool { return descriptors(t) <= base+n+5 }) // the backend's own
}

// O-02 (b): a slow answer is progress.
func TestHalfCloseProgress(t *testing.T) {
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		io.Copy(io.Discard, c)
		for range 15 {
			time.Sleep(100 * time.Millisecond)
			c.Write(make([]byte, 1000))
		}
	})), func(r *tcp.Route) { r.Spec.HalfClose = 700 * time.Millisecond })
	c := p.dial()
	c.CloseWrite()
	if n, err := io.Copy(io.Discard, c); n != 15_000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	p.outcome(l4.OK)
}

// O-03: a reset arrives as a reset, after the bytes that came before it.
func TestResetFromBackend(t *testing.T) {
	for _, size := range []int{0, 5, 300_000} {
		p := start(t, one(serve(t, func(c *net.TCPConn) {
			c.Read(make([]byte, 1)) // so that the connection is established for sure
			c.Write(make([]byte, size))
			if size > 0 {
				// A reset discards what the kernel still holds.
				time.Sleep(200 * time.Millisecond)
			}
			reset(c)
		})))
		c := p.dial()
		c.Write([]byte("x"))
		time.Sleep(400 * time.Millisecond) // the reset is there before the client reads
		n, err := io.Copy(io.Discard, c)
		if n != int64(size) || !isReset(err) {
			t.Errorf("size %d: got %d bytes, then %v", size, n, err)
		}
		if s := p.outcome(l4.BackendReset); s.By != l4.Backend {
			t.Errorf("ended by %v", s.By)
		}
	}
}

// The same when the backend resets before the proxy has noticed the connection.
func TestResetRightAfterBytes(t *testing.T) {
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		c.Write([]byte("12345"))
		reset(c)
	})))
	for range 50 {
		// How many bytes survive is the sender's kernel's choice; that the end is
		// not mistaken for an orderly one is ours.
		c, err := net.DialTimeout("tcp", p.addr, patience)
		if err == nil {
			c.SetDeadline(time.Now().Add(patience))
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		if !isReset(err) {
			t.Fatalf("ended with %v", err)
		}
	}
}

func TestResetFromClient(t *testing.T) {
	type result struct {
		n   int64
		err error
	}
	got := make(chan result, 1)
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		time.Sleep(300 * time.Millisecond)
		n, err := io.Copy(io.Discard, c)
		got <- result{n, err}
	})))
	c := p.dial()
	c.Write([]byte("12345"))
	time.Sleep(100 * time.Millisecond)
	reset(c)
	if r := <-got; r.n != 5 || !isReset(r.err) {
		t.Errorf("the backend got %d bytes, then %v", r.n, r.err)
	}
	p.outcome(l4.ClientReset)
}

// A client that half-closes, is answered for a while and then resets.
func TestResetAfterHalfClose(t *testing.T) {
	gone := make(chan error, 1)
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		io.Copy(io.Discard, c)
		for {
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				gone <- err
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})))
	c := p.dial()
	c.CloseWrite()
	io.ReadFull(c, make([]byte, 5000))
	reset(c)
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the backend never learns that the client is gone")
	}
	p.outcome(l4.ClientReset)
}

// O-03, control: an orderly end is never a reset, whoever closes first.
func TestOrderlyCloseIsNoReset(t *testing.T) {
	p := start(t, one(serve(t, func(c *net.TCPConn) { c.Write([]byte("bye")) })))
	for range 100 {
		c := p.dial()
		if got, err := io.ReadAll(c); string(got) != "bye" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		c.Close()
	}
	for _, s := range p.ended(100) {
		if s.Outcome != l4.OK {
			t.Fatalf("outcome %v", s.Outcome)
		}
	}
}

// O-04: a peer that does not read stops the other from being read.
func TestBackPressure(t *testing.T) {
	var written atomic.Int64
	sum := sha256.New()
	const total = 64 << 20
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		data := noise(total)
		sum.Write(data)
		for len(data) > 0 {
			n, err := c.Write(data[:min(len(data), 100_000)])
			written.Add(int64(n))
			if err != nil {
				return
			}
			data = data[n:]
		}
	})))
	c := p.dial()
	last := int64(-1)
	eventually(t, "the backend to be stopped", func() bool {
		now := written.Load()
		stopped := now == last && now > 0
		last = now
		time.Sleep(300 * time.Millisecond)
		return stopped
	})
	if last > 40<<20 {
		t.Errorf("%d MiB were taken from the backend while the client read nothing", last>>20)
	}
	got := sha256.New()
	if n, err := io.Copy(got, c); n != total || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Error("the bytes differ")
	}
}

// O-05: idle means no byte in either direction, and both sides hear of the end.
func TestIdle(t *testing.T) {
	told := make(chan error, 1)
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		_, err := io.Copy(c, c)
		told <- err
	})), func(r *tcp.Route) { r.Spec.Idle = 500 * time.Millisecond })
	c := p.dial()
	c.Write([]byte("abcd"))
	io.ReadFull(c, make([]byte, 4))
	began := time.Now()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a byte from nowhere")
	}
	if took := time.Since(began); took < 450*time.Millisecond {
		t.Errorf("closed after %v", took)
	}
	<-told
	p.outcome(l4.Idle)
}

func TestOneWayTrafficIsNotIdle(t *testing.T) {
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		for range 12 {
			time.Sleep(100 * time.Millisecond)
			c.Write([]byte("x"))
		}
	})), func(r *tcp.Route) { r.Spec.Idle = 600 * time.Millisecond })
	if got, err := io.ReadAll(p.dial()); len(got) != 12 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// O-21, listener P: a server that speaks first is not waited for.
func TestServerSpeaksFirst(t *testing.T) {
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		c.Write([]byte("220 ready\r\n"))
		io.Copy(io.Discard, c)
	})))
	c := p.dial()
	buf := make([]byte, 11)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "220 ready\r\n" {
		t.Errorf("%q, %v", buf, err)
	}
	c.Close()
}
