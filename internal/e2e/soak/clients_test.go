package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// soakCounts is what the clients of the abused service did.
type soakCounts struct {
	connected atomic.Int64 // to the abused service
	whole     atomic.Int64 // exchanges whose every byte came back
}

func (c *soakCounts) String() string {
	return fmt.Sprintf("%d connections, %d whole exchanges", c.connected.Load(), c.whole.Load())
}

// abuse makes one connection after the other, each with something else in mind.
func (s *soak) abuse(ctx context.Context, t *testing.T, r *rand.Rand) {
	for ctx.Err() == nil {
		addr, counted := s.abused, &s.clients.connected
		if r.IntN(10) == 0 {
			addr, counted = s.extra, nil // which is not always there
		}
		d := net.Dialer{Timeout: rig.Patience, LocalAddr: randomSource(r)}
		conn, err := d.Dial("tcp", addr)
		// A connection may be over before the client knows that it is there.
		if counted != nil && (err == nil || errors.Is(err, syscall.ECONNRESET)) {
			counted.Add(1)
		}
		if err != nil {
			if counted != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("connecting: %v", err)
			}
			time.Sleep(time.Millisecond)
			continue
		}
		c := conn.(*net.TCPConn)
		// No wait of the balancer's is as long.
		_ = c.SetDeadline(time.Now().Add(rig.Patience))
		err = s.converse(c, r)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("a connection was neither served nor ended in %v", rig.Patience)
		} else if _, wrong := err.(wrongByte); wrong {
			t.Error(err)
		}
		c.Close()
	}
}

// converse does one of the things that clients do. Errors are to be expected.
func (s *soak) converse(c *net.TCPConn, r *rand.Rand) error {
	size := 1 << r.IntN(20)
	switch r.IntN(10) {
	case 0: // in and out
		return nil
	case 1: // a reset out of nowhere
		rig.Reset(c)
		return nil
	case 2: // half-closed at once
		_ = c.CloseWrite()
		return readEcho(c, 0)
	case 3: // sends and is gone
		return sendPattern(c, size)
	case 4: // sends and resets
		err := sendPattern(c, size)
		rig.Reset(c)
		return err
	case 5: // stalls before, and after
		stall(r)
		if err := sendPattern(c, size); err != nil {
			return err
		}
		stall(r)
		return nil
	case 6: // sends, ends and does not read
		if err := sendPattern(c, size); err != nil {
			return err
		}
		_ = c.CloseWrite()
		stall(r)
		return nil
	}
	// An exchange, in both directions at once.
	sent := make(chan error, 1)
	go func() {
		err := sendPattern(c, size)
		_ = c.CloseWrite()
		sent <- err
	}()
	err := readEcho(c, size)
	if err == nil {
		s.clients.whole.Add(1)
	} else {
		c.Close() // which ends the sending
	}
	<-sent
	return err
}

func stall(r *rand.Rand) { time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond) }

func sendPattern(c net.Conn, n int) error {
	for n > 0 {
		m, err := c.Write(rig.Block()[:min(n, len(rig.Block()))])
		n -= m
		if err != nil {
			return err
		}
	}
	return nil
}

// wrongByte is the one error that nothing excuses.
type wrongByte struct{ at, size int }

func (w wrongByte) Error() string {
	return fmt.Sprintf("byte %d of an exchange of %d is not the one that was sent", w.at, w.size)
}

// readEcho reads what comes back of size bytes of blocks, to the end.
func readEcho(c net.Conn, size int) error {
	buf := make([]byte, 32<<10)
	for at := 0; ; {
		n, err := c.Read(buf)
		for _, b := range buf[:n] {
			if at >= size || b != rig.Block()[at%len(rig.Block())] {
				return wrongByte{at, size}
			}
			at++
		}
		if err == io.EOF && at < size {
			return io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
