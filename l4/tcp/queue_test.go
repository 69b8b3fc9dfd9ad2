package tcp_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// queueing runs a proxy before one echo backend with room for one connection, and
// returns the client that has it.
func queueing(t *testing.T, q balance.Queue) (*proxy, *net.TCPConn) {
	t.Helper()
	b := echo(t)
	b.MaxConnections = 1
	p := start(t, one(b), func(r *tcp.Route) {
		spec := r.To.Pool.Spec()
		spec.Queue = q
		r.To.Pool.Update(spec)
	})
	c := p.dial()
	exchange(t, c)
	return p, c
}

// exchange sends a few bytes and waits for them to come back.
func exchange(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
}

func (p *proxy) waiting(n int) {
	p.t.Helper()
	eventually(p.t, "clients to wait", func() bool { return p.pool.Waiting() == n })
}

func TestQueue(t *testing.T) {
	p, first := queueing(t, balance.Queue{Size: 10, Timeout: patience})
	var clients []*net.TCPConn
	for i := range 5 { // one by one, for the order
		c := p.dial()
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		p.waiting(i + 1)
	}
	first.Close()
	for i, c := range clients {
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		c.Close()
		p.ended(i + 2)
	}
	for i, s := range p.ended(6) {
		if s.Outcome != l4.OK || s.QueuePos != i || s.Wait < 0 || i > 0 && s.Wait == 0 {
			t.Errorf("session %d: %v, position %d, waited %v", i, s.Outcome, s.QueuePos, s.Wait)
		}
	}
}

func TestQueueTimeout(t *testing.T) {
	p, first := queueing(t, balance.Queue{Size: 10, Timeout: 50 * time.Millisecond})
	c := p.dial()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	s := p.outcome(l4.QueueTimeout)
	if s.QueuePos != 1 || s.Wait != l4.Unreached || s.Total < 50*time.Millisecond || s.By != l4.Proxy {
		t.Errorf("session %+v", s)
	}
	p.waiting(0)
	exchange(t, first)
}

func TestQueueFull(t *testing.T) {
	p, first := queueing(t, balance.Queue{Size: 1, Timeout: patience})
	second := p.dial()
	p.waiting(1)
	if err := p.refused(); !isReset(err) {
		t.Fatalf("the client sees %v", err)
	}
	p.outcome(l4.QueueFull)
	first.Close()
	exchange(t, second)
}

// A client that resets leaves the queue; those behind it move up.
func TestClientLeavesQueue(t *testing.T) {
	p, first := queueing(t, balance.Queue{Size: 10, Timeout: patience})
	second := p.dial()
	p.waiting(1)
	third := p.dial()
	p.waiting(2)
	reset(second)
	p.waiting(1)
	p.outcome(l4.ClientReset)
	first.Close()
	exchange(t, third)
}

// Whoever waits is refused when there is nobody left to wait for.
func TestQueueWithoutBackend(t *testing.T) {
	p, first := queueing(t, balance.Queue{Size: 10, Timeout: patience})
	second := p.dial()
	p.waiting(1)
	p.pool.SetFlag(p.pool.Backends()[0].ID(), balance.Down, true)
	if n, err := second.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	p.outcome(l4.NoBackend)
	exchange(t, first)
}

// Closing everything with clients in the queue leaves nothing behind.
func TestKillQueue(t *testing.T) {
	p, _ := queueing(t, balance.Queue{Size: 100, Timeout: patience})
	for range 20 {
		p.dial()
	}
	p.waiting(20)
	p.Kill(l4.Killed)
	for _, s := range p.ended(21) {
		if s.Outcome != l4.Killed {
			t.Errorf("outcome %v", s.Outcome)
		}
	}
	if p.pool.Waiting() != 0 {
		t.Errorf("%d wait", p.pool.Waiting())
	}
}

// Many clients, few places, some impatient: everybody gets a turn or leaves, and
// no place is lost.
func TestQueueUnderLoad(t *testing.T) {
	b := echo(t)
	b.MaxConnections = 3
	p := start(t, one(b), func(r *tcp.Route) {
		spec := r.To.Pool.Spec()
		spec.Queue = balance.Queue{Size: 1000, Timeout: patience}
		r.To.Pool.Update(spec)
	})
	const clients, each = 20, 20
	done := make(chan error, clients)
	for i := range clients {
		go func() {
			var err error
			for j := 0; j < each && err == nil; j++ {
				err = impatient(p.addr, (i+j)%4 == 0)
			}
			done <- err
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, s := range p.ended(clients * each) {
		if s.Outcome != l4.OK && s.Outcome != l4.ClientReset && s.Outcome != l4.BackendReset {
			t.Errorf("outcome %v", s.Outcome)
		}
	}
}

// impatient uses one connection, or resets it before anything has come back.
func impatient(addr string, leave bool) error {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if leave {
		return c.(*net.TCPConn).SetLinger(0)
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 4))
	return err
}
