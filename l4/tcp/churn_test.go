package tcp_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Many connections at once that end in every way, in the middle of whatever: those
// that are to get an answer get it, and nothing of any stays (see start).
func TestChurn(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		p := m.through(t, func(e end) {
			head := make([]byte, 1)
			if _, err := io.ReadFull(e, head); err != nil {
				return
			}
			if head[0] == 'R' {
				reset(raw(e))
				return
			}
			io.Copy(e, e)
			finish(e)
			io.Copy(io.Discard, e)
		})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 6 {
					m.visit(t, p)
				}
			})
		}
		all.Wait()
		p.ended(48)
		p.shaking(0)
	})
}

// visit is one client, that ends in some way.
func (m mode) visit(t *testing.T, p *proxy) {
	c, err := net.DialTimeout("tcp", p.addr, patience)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * patience))
	if rand.IntN(10) == 0 {
		return // before it has said anything
	}
	e := m.client(t, c.(*net.TCPConn))
	data := noise(1 + rand.IntN(1<<rand.IntN(19)))
	switch rand.IntN(5) {
	case 0: // the backend resets
		e.Write([]byte("R"))
		if b, err := io.ReadAll(e); err == nil && len(b) > 0 {
			t.Errorf("%d bytes of a backend that resets", len(b))
		}
	case 1: // the client resets, with an answer under way
		e.Write(append([]byte("e"), data...))
		reset(raw(e))
	case 2: // it leaves, likewise
		e.Write(append([]byte("e"), data...))
		e.Close()
	default:
		go func() {
			e.Write(append([]byte("e"), data...))
			finish(e)
		}()
		if b, err := io.ReadAll(e); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%d of %d bytes, %v", len(b), len(data), err)
		}
	}
}
