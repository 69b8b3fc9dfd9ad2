package tcp_test

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tcp"
)

// When the outbox is full it is written out before the next event is looked at.
// If that write is what notices a backend's reset, the event that tells of the
// same reset must not be taken for one of the client.
func TestResetNoticedByFullOutbox(t *testing.T) {
	const size, inOutbox = 1 << 20, 64
	doReset := make(chan struct{})
	b := serve(t, func(c *net.TCPConn) {
		first := make([]byte, 1)
		c.Read(first)
		if first[0] != 'X' {
			io.Copy(io.Discard, c)
			return
		}
		c.Write(make([]byte, size))
		<-doReset
		reset(c)
	})
	// A single loop, which can be held up by the end of a connection.
	loops, err := loop.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loops.Stop)
	s := tcp.NewServer(service.Host{Loops: loops, Descriptors: new(sock.Descriptors), Log: slog.New(slog.DiscardHandler)}, tcp.Hooks{Ended: func(s *l4.Session) {
		if s.BytesIn == 3 {
			time.Sleep(500 * time.Millisecond)
		}
	}})
	t.Cleanup(s.Close)
	p := &proxy{Server: s, t: t}
	p.pool = balance.New(balance.Spec{Name: "pool", Algorithm: "round-robin", Backends: one(b)}, nil)
	p.route = tcp.Route{Spec: spec("service"), To: &tcp.Upstream{Pool: p.pool}}
	p.route.Spec.Listen = []l4.Listen{{Addr: freeAddr(t)}}
	p.addr = p.route.Spec.Listen[0].String()
	p.run(p.route)

	var others []*net.TCPConn
	for range inOutbox - 1 {
		c := p.dial()
		c.Write([]byte("o"))
		others = append(others, c)
	}
	holdUp := p.dial()
	holdUp.Write([]byte("lll"))
	client := p.narrow()
	client.Write([]byte("X"))
	time.Sleep(300 * time.Millisecond)
	holdUp.Close()
	time.Sleep(100 * time.Millisecond) // the loop stands still now
	client.Write([]byte("more"))
	for _, c := range others {
		c.Write([]byte("o"))
	}
	close(doReset)
	time.Sleep(600 * time.Millisecond)
	if n, err := io.Copy(io.Discard, client); n != size || !isReset(err) {
		t.Errorf("%d of %d bytes, then %v", n, size, err)
	}
}
