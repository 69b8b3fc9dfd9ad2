package tcp_test

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// narrow dials the proxy with a small receive window, so that what is owed to the
// client stays in the proxy's kernel for a while.
func (p *proxy) narrow() *net.TCPConn {
	p.t.Helper()
	d := net.Dialer{Timeout: patience, Control: func(_, _ string, rc syscall.RawConn) error {
		return rc.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10) })
	}}
	c, err := d.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(2 * patience))
	p.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// burst is a backend that waits for a byte, sends size bytes and, if it is to,
// resets a little later.
func burst(t *testing.T, size int, resets bool) balance.BackendSpec {
	return serve(t, func(c *net.TCPConn) {
		c.Read(make([]byte, 1))
		c.Write(make([]byte, size))
		if resets {
			time.Sleep(300 * time.Millisecond)
			reset(c)
		}
	})
}

// A client that resets while the backend takes nothing: its reset waits behind
// bytes that nobody reads, and still the half-close limit holds.
func TestResetBehindStalledBytes(t *testing.T) {
	stop := make(chan struct{})
	p := start(t, one(serve(t, func(*net.TCPConn) { <-stop })), func(r *tcp.Route) {
		r.Spec.Idle, r.Spec.HalfClose = 0, 500*time.Millisecond
	})
	defer close(stop)
	c := p.dial()
	c.SetWriteDeadline(time.Now().Add(1500 * time.Millisecond))
	chunk := make([]byte, 1<<20)
	for {
		if _, err := c.Write(chunk); err != nil {
			break // nobody takes any more
		}
	}
	reset(c)
	p.outcome(l4.HalfCloseTimeout)
}

// What came before a reset is delivered to a client that takes long but never
// stops reading, however short the limit for making no progress.
func TestSlowReaderGetsAllBeforeReset(t *testing.T) {
	const size = 2 << 20
	p := start(t, one(burst(t, size, true)), func(r *tcp.Route) { r.Spec.HalfClose = time.Second })
	c := p.narrow()
	c.Write([]byte("x"))
	got, buf := 0, make([]byte, 40<<10)
	var err error
	for err == nil {
		var n int
		n, err = c.Read(buf)
		got += n
		time.Sleep(40 * time.Millisecond)
	}
	if got != size || !isReset(err) {
		t.Errorf("got %d of %d bytes, then %v", got, size, err)
	}
}

// A stream that is cut short never looks complete.
func TestCutStreamIsReset(t *testing.T) {
	for name, c := range map[string]struct {
		backend func() balance.BackendSpec
		idle    time.Duration
		cut     func(*proxy)
	}{
		"backend down while a reset is owed": {
			func() balance.BackendSpec { return burst(t, 4<<20, true) }, 0,
			func(p *proxy) {
				time.Sleep(time.Second)
				p.CloseBackend(p.pool.Backends()[0], l4.BackendDown, 0)
			},
		},
		"idle with bytes held": {
			func() balance.BackendSpec { return burst(t, 32<<20, false) }, 500 * time.Millisecond,
			func(*proxy) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, one(c.backend()), func(r *tcp.Route) { r.Spec.Idle = c.idle })
			client := p.narrow()
			client.Write([]byte("x"))
			c.cut(p)
			p.ended(1)
			if n, err := io.Copy(io.Discard, client); !isReset(err) {
				t.Errorf("%d bytes, then %v", n, err)
			}
		})
	}
}

// A FIN and a reset that come together are a reset.
func TestFinThenReset(t *testing.T) {
	told := make(chan struct{})
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		defer close(told)
		if _, err := io.Copy(io.Discard, c); isReset(err) {
			return
		}
		for range 1000 { // after a FIN only the socket's error tells of a reset
			rc, err := c.SyscallConn()
			if err != nil {
				return
			}
			var pending int
			rc.Control(func(fd uintptr) { pending, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR) })
			if pending != 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("the backend is not told of the reset")
	})))
	c := p.dial()
	c.Write([]byte("12345"))
	c.CloseWrite()
	reset(c)
	<-told
	p.outcome(l4.ClientReset)
}

// The time of failed attempts is not charged to the backend that answered.
func TestFirstByteExcludesRetries(t *testing.T) {
	const connect = 2 * time.Second
	good := serve(t, func(c *net.TCPConn) { c.Write([]byte("x")) })
	p := start(t, []balance.BackendSpec{mute(t), good}, func(r *tcp.Route) { r.Spec.Connect = connect })
	for range 2 { // one of them meets the silent one
		c := p.dial()
		io.ReadAll(c)
		c.Close()
	}
	for _, s := range p.ended(2) {
		if s.FirstByte >= connect {
			t.Errorf("first byte after %v, of a backend that answers at once", s.FirstByte)
		}
	}
}

func TestStopAcceptingAfterClose(t *testing.T) {
	p := start(t, one(echo(t)))
	p.Close()
	p.StopAccepting()
}
