package tcp_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// send writes all of data to e in pieces of random sizes.
func send(e end, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), 1+rand.IntN(100_000))
		if rand.IntN(4) == 0 {
			n = min(n, 1+rand.IntN(50))
		}
		if _, err := e.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// receive reads size bytes of e, now and then slowly, and returns their checksum.
func receive(e end, size int) ([32]byte, error) {
	sum := sha256.New()
	buf := make([]byte, 70_000)
	for got := 0; got < size; {
		n, err := e.Read(buf[:1+rand.IntN(len(buf))])
		sum.Write(buf[:n])
		if got += n; err != nil && got < size { // TLS returns the end with the last bytes
			return [32]byte{}, err
		}
		if rand.IntN(50) == 0 {
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		}
	}
	return [32]byte(sum.Sum(nil)), nil
}

// Both directions at once, at odd sizes and speeds: every byte arrives, in order.
func TestBulkBothWays(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		up, down := noise(8<<20+3), noise(8<<20+5)
		both := func(e end, out, in []byte) {
			var sending sync.WaitGroup
			sending.Go(func() {
				if err := send(e, out); err != nil {
					t.Errorf("sending: %v", err)
				}
			})
			if sum, err := receive(e, len(in)); err != nil || sum != sha256.Sum256(in) {
				t.Errorf("receiving: %v", err)
			}
			sending.Wait()
		}
		p := m.through(t, func(e end) {
			both(e, down, up)
			finish(e)
			io.Copy(io.Discard, e)
		})
		c := m.client(t, p.dial())
		c.SetDeadline(time.Now().Add(2 * patience))
		both(c, up, down)
		if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
			t.Errorf("%d more bytes, %v", n, err)
		}
		c.Close()
		s := p.ended(1)[0]
		if !m.sni && (s.BytesIn != uint64(len(up)) || s.BytesOut != uint64(len(down))) {
			t.Errorf("%d bytes in, %d out", s.BytesIn, s.BytesOut)
		}
	})
}

// Requests and answers of random sizes, one after the other: whatever wakes the
// relay up wakes it up every time.
func TestPingPong(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		p := m.through(t, func(e end) {
			buf := make([]byte, 200_000)
			for {
				n, err := e.Read(buf)
				if err != nil {
					return
				}
				if _, err := e.Write(buf[:n]); err != nil {
					return
				}
			}
		})
		c := m.client(t, p.dial())
		c.SetDeadline(time.Now().Add(2 * patience))
		data, got := noise(150_000), make([]byte, 150_000)
		for range 200 {
			n := 1 + rand.IntN(300)
			if rand.IntN(10) == 0 {
				n = 1 + rand.IntN(len(data))
			}
			if _, err := c.Write(data[:n]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, got[:n]); err != nil || !bytes.Equal(got[:n], data[:n]) {
				t.Fatalf("an answer of %d bytes: %v", n, err)
			}
		}
		c.Close()
	})
}

// What is ready goes on at once, and not when a timer happens to wake the loop up.
func TestNothingWaitsForATimer(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := m.through(t, func(e end) { io.Copy(e, e) })
			fastest := time.Hour // of several: the machine may be slow, but not always
			for range 5 {
				begun := time.Now()
				c := m.client(t, p.dial())
				if err := ping(c); err != nil {
					t.Fatal(err)
				}
				fastest = min(fastest, time.Since(begun))
				c.Close()
			}
			if fastest > 200*time.Millisecond { // timers wake it up after 250 ms, or later
				t.Errorf("the fastest of 5 exchanges took %v", fastest)
			}
		})
	}
}

// O-04: a reader that reads nothing stops the writer, and the loop stands still
// meanwhile. Then everything arrives.
func TestBackPressureInEveryMode(t *testing.T) {
	for _, m := range modes { // one after the other: rounds of the loops are counted
		t.Run(m.name, func(t *testing.T) {
			const most = 64 << 20 // more than the kernel's buffers take
			var wrote atomic.Int64
			sum := make(chan [32]byte, 1)
			stop := make(chan struct{})
			p := m.through(t, func(e end) {
				e.Read(make([]byte, 1))
				h, chunk := sha256.New(), noise(64<<10)
				for {
					select {
					case <-stop:
						sum <- [32]byte(h.Sum(nil))
						return
					default:
					}
					n, err := e.Write(chunk)
					h.Write(chunk[:n])
					if wrote.Add(int64(n)); err != nil || wrote.Load() > most {
						t.Errorf("after %d bytes: %v", wrote.Load(), err)
						return
					}
				}
			})
			c := m.client(t, p.narrow())
			c.Write([]byte("x"))
			before := int64(-1)
			eventually(t, "the writer to stop", func() bool {
				time.Sleep(200 * time.Millisecond)
				now := wrote.Load()
				stands := now == before && now > 0
				before = now
				return stands
			})
			turns := func() (n uint64) {
				for _, l := range p.loops {
					n += l.Rounds()
				}
				return n
			}
			was := turns()
			time.Sleep(300 * time.Millisecond)
			if n := turns() - was; n > 50 {
				t.Errorf("%d rounds of the loops while nothing can move", n)
			}
			close(stop)
			h := sha256.New()
			if _, err := io.Copy(h, c); err != nil || [32]byte(h.Sum(nil)) != <-sum {
				t.Errorf("what comes afterwards: %v", err)
			}
			c.Close()
		})
	}
}
