package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// MaxDatagram is the longest request over UDP in bytes: what fits an IPv4
// datagram. With a name before it the reply to one so long does not, and a
// DatagramBackend sends it back without.
const MaxDatagram = 65507

// DatagramBehaviour is how a DatagramBackend treats what it receives. A change
// applies to the next datagram.
type DatagramBehaviour struct {
	Mode  Mode          // Named, Echo, or Sink, which only counts
	Delay time.Duration // before each reply; others are served meanwhile
}

// DatagramStats are a DatagramBackend's counters since it was made.
type DatagramStats struct {
	Received uint64
	Answered uint64
	BytesIn  uint64
	BytesOut uint64
}

// A DatagramBackend is a UDP server for demonstrations and tests. It can be stopped
// and revived on its port, which stays its own until Close.
type DatagramBackend struct {
	name      string
	port      *Reservation
	behaviour atomic.Pointer[DatagramBehaviour]
	closing   chan struct{}
	tasks     sync.WaitGroup

	mu     sync.Mutex // guards the following
	conn   *net.UDPConn
	closed bool

	received, answered, bytesIn, bytesOut atomic.Uint64
}

// NewDatagramBackend starts a server on addr, an IP address and a port; "" means
// 127.0.0.1 and a free port. The caller must Close it.
func NewDatagramBackend(name, addr string, how DatagramBehaviour) (*DatagramBackend, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	port, err := reserveUDP(addr)
	if err != nil {
		return nil, err
	}
	b := &DatagramBackend{name: name, port: port, closing: make(chan struct{})}
	b.behaviour.Store(&how)
	if err := b.Revive(); err != nil {
		port.Close()
		return nil, err
	}
	return b, nil
}

// Name is what the backend calls itself in its replies.
func (b *DatagramBackend) Name() string { return b.name }

// Addr is the address it receives on, stopped or not.
func (b *DatagramBackend) Addr() netip.AddrPort { return b.port.Addr() }

// Behave changes the behaviour.
func (b *DatagramBackend) Behave(how DatagramBehaviour) { b.behaviour.Store(&how) }

// Stats returns the counters.
func (b *DatagramBackend) Stats() DatagramStats {
	return DatagramStats{
		Received: b.received.Load(),
		Answered: b.answered.Load(),
		BytesIn:  b.bytesIn.Load(),
		BytesOut: b.bytesOut.Load(),
	}
}

// Stop closes the socket: from now on datagrams are refused (ICMP port
// unreachable), and replies that are still delayed are not sent.
func (b *DatagramBackend) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.Close()
		b.conn = nil
	}
}

// Revive receives again after Stop; on a running backend it does nothing.
func (b *DatagramBackend) Revive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("backend %s: %w", b.name, net.ErrClosed)
	}
	if b.conn != nil {
		return nil
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return control(c.Control, reuseAddr)
	}}
	// Only the context could cancel it, and nothing here waits.
	c, err := lc.ListenPacket(context.Background(), "udp", b.Addr().String())
	if err != nil {
		return fmt.Errorf("backend %s: %w", b.name, err)
	}
	b.conn = c.(*net.UDPConn)
	_ = b.conn.SetReadBuffer(4 << 20) // as far as the system lets it
	b.tasks.Go(func() { b.serve(c.(*net.UDPConn)) })
	return nil
}

// Close stops the backend for good and waits for its goroutines.
func (b *DatagramBackend) Close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if first {
		close(b.closing)
		b.Stop()
		b.port.Close()
	}
	b.tasks.Wait()
}

// serve ends when c is closed.
func (b *DatagramBackend) serve(c *net.UDPConn) {
	head := append([]byte(b.name), '\n')
	buf := make([]byte, len(head)+MaxDatagram+1)
	copy(buf, head)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf[len(head):])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of an earlier reply, whose client has gone
		}
		b.received.Add(1)
		b.bytesIn.Add(uint64(n))
		how := *b.behaviour.Load()
		reply := buf[:len(head)+n]
		if how.Mode != Named || len(reply) > MaxDatagram {
			reply = reply[len(head):]
		}
		switch {
		case how.Mode == Sink:
		case how.Delay > 0:
			reply := append([]byte(nil), reply...)
			b.tasks.Go(func() {
				if sleep(how.Delay, b.closing) {
					b.send(c, reply, from)
				}
			})
		default:
			b.send(c, reply, from)
		}
	}
}

func (b *DatagramBackend) send(c *net.UDPConn, reply []byte, to netip.AddrPort) {
	b.answered.Add(1) // before the reply, so that whoever has it finds it counted
	b.bytesOut.Add(uint64(len(reply)))
	_, _ = c.WriteToUDPAddrPort(reply, to)
}
