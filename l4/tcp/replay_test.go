package tcp_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// A quitter is a backend that takes some bytes and ends without a word.
func quitter(t *testing.T, name string, take int, resets bool, m mode) balance.BackendSpec {
	return named(m.serve(t, func(e end) {
		io.ReadFull(e, make([]byte, take))
		if resets {
			reset(raw(e))
		}
	}), name)
}

// collector is a backend that takes size bytes, or all of them if that is negative,
// and answers.
func collector(t *testing.T, name string, size int, got chan []byte, m mode) balance.BackendSpec {
	return named(m.serve(t, func(e end) {
		b := make([]byte, max(size, 0))
		if size < 0 {
			b, _ = io.ReadAll(e)
		} else {
			io.ReadFull(e, b)
		}
		got <- b
		e.Write([]byte("answer"))
		finish(e)
		io.Copy(io.Discard, e)
	}), name)
}

// firstIs has a pool ask its backends in their order.
func (p *proxy) firstIs(backends ...balance.BackendSpec) {
	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "first", Backends: backends})
}

// A backend that ends before its first byte is replaced: another one gets exactly
// what the client has sent, and the client notices nothing.
func TestReplay(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		if m.sni {
			return // a handshake end to end is no first byte to test with
		}
		m.replay = 64 << 10
		for _, c := range []struct {
			size, take int
			resets     bool
			fin        bool
		}{
			{size: 0, resets: true},
			{size: 5, take: 5, resets: true},
			{size: 5, take: 5},
			{size: 5, take: 0, resets: true},
			{size: 5, take: 5, resets: true, fin: true},
			{size: 60_000, take: 60_000, resets: true, fin: true},
			{size: 64 << 10, take: 1, resets: true},
			{size: 64 << 10, take: 64 << 10},
		} {
			request := noise(c.size)
			size := c.size
			if c.fin {
				size = -1
			}
			got := make(chan []byte, 4)
			b := []balance.BackendSpec{
				quitter(t, "first", c.take, c.resets, m), quitter(t, "second", c.take, !c.resets || c.fin, m), collector(t, "third", size, got, m),
			}
			p := start(t, b, m.apply(t))
			p.firstIs(b...)
			client := m.client(t, p.dial())
			if c.size > 0 {
				client.Write(request)
			} else if m.front {
				client.(interface{ Handshake() error }).Handshake()
			}
			if c.fin {
				client.CloseWrite()
			}
			select {
			case all := <-got:
				if !bytes.Equal(all, request) {
					t.Errorf("%+v: the last backend got %d bytes", c, len(all))
				}
			case <-time.After(patience):
				t.Fatalf("%+v: the last backend gets nothing: %+v", c, p.ended(1))
			}
			if answer, err := io.ReadAll(client); string(answer) != "answer" || err != nil {
				t.Errorf("%+v: the client got %q, %v", c, answer, err)
			}
			client.Close()
			s := p.ended(1)[0]
			if s.Outcome != l4.OK || s.Retries != 2 || s.Backend != "third" || s.BytesIn != uint64(c.size) || s.BytesOut != 6 {
				t.Errorf("%+v: %+v", c, s)
			}
			if svc := p.Services()[0]; svc.Stats.BytesIn.Load() != uint64(c.size) || svc.Stats.BytesOut.Load() != 6 {
				t.Errorf("%+v: the service counts %d in, %d out", c, svc.Stats.BytesIn.Load(), svc.Stats.BytesOut.Load())
			}
			for i, b := range p.pool.Backends() {
				in := b.Stats.BytesIn.Load()
				if in > uint64(c.size) || in < uint64(c.take) || i == 2 && in != uint64(c.size) {
					t.Errorf("%+v: backend %d was sent %d bytes, by its count", c, i, in)
				}
			}
		}
	})
}

// A backend that ends in order after its client has, without a word, has taken a
// message of a protocol without answers: it is not delivered twice, and nobody is to
// blame. A client that comes and goes says nothing about a backend either.
func TestNoReplayOfOneWay(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		if m.sni {
			return
		}
		m.replay = 16 << 10
		for _, request := range []string{"message", ""} {
			got := make(chan []byte, 4)
			take := func(name string) balance.BackendSpec {
				return named(m.serve(t, func(e end) {
					b, _ := io.ReadAll(e)
					got <- b
				}), name)
			}
			p := start(t, []balance.BackendSpec{take("a"), take("b")}, m.apply(t))
			client := m.client(t, p.dial())
			if request != "" {
				client.Write([]byte(request))
			} else if m.front {
				client.(interface{ Handshake() error }).Handshake()
			}
			client.CloseWrite()
			if b, err := io.ReadAll(client); len(b) > 0 || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			client.Close()
			if s := p.ended(1)[0]; s.Outcome != l4.OK || s.Retries != 0 {
				t.Errorf("%+v", s)
			}
			if b := <-got; string(b) != request || len(got) > 0 {
				t.Errorf("delivered %q, and %d more", b, len(got))
			}
			p.mu.Lock()
			for _, e := range p.evidence {
				if e != l4.Answered {
					t.Error("a backend is blamed")
				}
			}
			p.mu.Unlock()
		}
	})
}

// A backend that ends in order after the client has taken what there was to say.
func TestNoReplayAfterOrderlyEnds(t *testing.T) {
	for _, m := range []mode{{}, {front: true, back: true}} {
		m.replay = 1000
		got := make(chan []byte, 1)
		first := named(m.serve(t, func(e end) { io.Copy(io.Discard, e) }), "first")
		second := collector(t, "second", -1, got, m)
		p := start(t, []balance.BackendSpec{first, second}, m.apply(t))
		p.firstIs(first, second)
		c := m.client(t, p.dial())
		c.Write([]byte("hello"))
		c.CloseWrite()
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
			t.Errorf("the client got %q, %v", b, err)
		}
		c.Close()
		if s := p.outcome(l4.OK); s.Backend != "first" || s.Retries != 0 || len(got) > 0 {
			t.Errorf("%+v", s)
		}
	}
}

// What must not be sent twice is not: more than is kept, what has been answered,
// without a retry left, and where nobody has asked for it.
func TestNoReplay(t *testing.T) {
	plain := mode{}
	for what, c := range map[string]struct {
		keep, retries, size int
		says                string
	}{
		"more than is kept": {keep: 1000, retries: 2, size: 1001},
		"answered":          {keep: 1000, retries: 2, size: 5, says: "1"},
		"no retry":          {keep: 1000, retries: 0, size: 5},
		"off":               {keep: 0, retries: 2, size: 5},
	} {
		for _, resets := range []bool{true, false} {
			t.Run(what, func(t *testing.T) {
				first := named(serve(t, func(b *net.TCPConn) {
					io.ReadFull(b, make([]byte, c.size))
					b.Write([]byte(c.says))
					if resets {
						time.Sleep(50 * time.Millisecond) // a reset takes what is unread with it
						reset(b)
					}
				}), "first")
				got := make(chan []byte, 1)
				second := collector(t, "second", 1, got, plain)
				p := start(t, []balance.BackendSpec{first, second}, func(r *tcp.Route) { r.To.Replay, r.Spec.Retries = c.keep, c.retries })
				p.firstIs(first, second)
				client := p.dial()
				client.Write(make([]byte, c.size))
				b, err := io.ReadAll(client)
				if string(b) != c.says || isReset(err) != resets {
					t.Errorf("the client got %q, %v", b, err)
				}
				client.Close()
				want := l4.OK
				if resets {
					want = l4.BackendReset
				}
				if s := p.outcome(want); s.Backend != "first" || s.Retries != 0 {
					t.Errorf("%+v", s)
				}
				if len(got) > 0 {
					t.Error("another backend was asked")
				}
			})
		}
	}
}

// The pool's budget is for replays too.
func TestReplayWithinBudget(t *testing.T) {
	got := make(chan []byte, 100)
	b := []balance.BackendSpec{quitter(t, "first", 1, true, mode{}), collector(t, "second", 1, got, mode{})}
	p := start(t, b, func(r *tcp.Route) { r.To.Replay = 1000 })
	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "first", Backends: b, Retry: balance.RetryBudget{Percent: 20}})
	n := 0
	for range 20 {
		c := p.dial()
		c.Write([]byte("x"))
		if b, _ := io.ReadAll(c); string(b) == "answer" {
			n++
		}
		c.Close()
	}
	if n == 0 || n > 10 {
		t.Errorf("%d of 20 went to another backend", n)
	}
}

// The time for connecting begins anew: the first backend may have thought for long.
func TestReplayAfterLong(t *testing.T) {
	got := make(chan []byte, 1)
	first := named(serve(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 5))
		time.Sleep(700 * time.Millisecond)
		reset(c)
	}), "first")
	second := collector(t, "second", 5, got, mode{})
	p := start(t, []balance.BackendSpec{first, second}, func(r *tcp.Route) {
		r.To.Replay, r.Spec.ConnectTotal, r.Spec.Connect = 1000, 500*time.Millisecond, 500*time.Millisecond
	})
	p.firstIs(first, dead(t), second)
	c := p.dial()
	c.Write([]byte("hello"))
	if b, err := io.ReadAll(c); string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
	c.Close()
	p.outcome(l4.OK)
}

// What the client says while another backend is being asked comes after the rest.
func TestReplayGoesOn(t *testing.T) {
	got := make(chan []byte, 1)
	first := named(serve(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 5))
		reset(c)
	}), "first")
	size := 5 + 1<<20
	second := collector(t, "second", size, got, mode{})
	p := start(t, []balance.BackendSpec{first, second}, func(r *tcp.Route) { r.To.Replay = 1000 })
	p.firstIs(first, mute(t), second)
	all := noise(size)
	c := p.dial()
	c.Write(all[:5])
	eventually(t, "the silent one to be asked", func() bool {
		conns := p.Conns(1, "", "")
		return len(conns) == 1 && conns[0].Backend == "mute"
	})
	c.Write(all[5:])
	if b := <-got; !bytes.Equal(b, all) {
		t.Errorf("%d bytes", len(b))
	}
	if b, err := io.ReadAll(c); string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
	c.Close()
	p.outcome(l4.OK)
}
