package tcp_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// A hoard is a connection that keeps what is written, from some moment on.
type hoard struct {
	net.Conn
	kept bytes.Buffer
	on   bool
}

func (h *hoard) Write(b []byte) (int, error) {
	if h.on {
		return h.kept.Write(b)
	}
	return h.Conn.Write(b)
}

// Whatever one peer sends, the loop comes back to the others soon: a ping beside it is
// answered, and rounds stay short. Before a turn was bounded by work, 1 MiB in records
// of one byte kept the loop for 309 ms, and 100 bulk peers for 50 ms.
func TestOnePeerTakesNoMoreThanItsShare(t *testing.T) {
	// The loop must not wait for a processor behind the goroutines of the peers.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	for name, c := range map[string]struct {
		mode    mode
		peers   int
		forward bool // the backend says nothing: what comes from clients is the load
		do      func(t *testing.T, c *net.TCPConn)
	}{
		"records of one byte": {mode: mode{front: true}, peers: 4, forward: true, do: func(t *testing.T, c *net.TCPConn) {
			h := &hoard{Conn: c}
			e := tls.Client(h, clientConfig())
			if err := e.Handshake(); err != nil {
				t.Error(err)
				return
			}
			h.on = true
			for err := error(nil); err == nil; _, err = io.Copy(c, &h.kept) {
				for range 100_000 {
					e.Write([]byte{'x'})
				}
			}
		}},
		"a ClientHello byte by byte": {mode: mode{sni: true}, peers: 8, do: func(_ *testing.T, c *net.TCPConn) {
			dribble(c, append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc}, make([]byte, 16000)...))
		}},
		"a ClientHello in records of one byte": {mode: mode{sni: true}, peers: 8, do: func(_ *testing.T, c *net.TCPConn) {
			b := []byte{22, 3, 1, 0, 4, 1, 0, 0x0f, 0xf0}
			for range 2700 {
				b = append(b, 22, 3, 1, 0, 1, 0)
			}
			dribble(c, b)
		}},
		"a handshake in records of one byte": {mode: mode{front: true}, peers: 8, do: func(_ *testing.T, c *net.TCPConn) {
			b := []byte{22, 3, 1, 0, 4, 1, 0, 0xff, 0xf0}
			for range 60_000 {
				b = append(b, 22, 3, 1, 0, 1, 0)
			}
			c.Write(b)
		}},
		"a PROXY header byte by byte": {mode: mode{proxyIn: true}, peers: 8, do: func(_ *testing.T, c *net.TCPConn) {
			dribble(c, append([]byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\xff\xf0"), make([]byte, 20_000)...))
		}},
		"100 bulk peers": {peers: 100, do: func(_ *testing.T, c *net.TCPConn) {
			io.Copy(io.Discard, c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.mode.serve(t, func(e end) {
				if c.forward {
					io.Copy(io.Discard, e)
					return
				}
				for chunk := make([]byte, 256<<10); ; {
					if _, err := e.Write(chunk); err != nil {
						return
					}
				}
			})
			p := startOn(t, 1, one(b), c.mode.apply(t))
			beside := tcp.Route{Spec: spec("beside"), To: &tcp.Upstream{Pool: balance.New(balance.Spec{
				Name: "beside", Algorithm: "round-robin", Backends: one(echo(t)),
			}, nil)}}
			beside.Spec.Listen = []l4.Listen{{Addr: freeAddr(t)}}
			p.run(p.route, beside)

			var mu sync.Mutex
			var open []*net.TCPConn
			stop := make(chan struct{})
			var peers sync.WaitGroup
			for range c.peers {
				peers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						d, err := net.Dial("tcp", p.addr)
						if err != nil {
							t.Error(err)
							return
						}
						conn := d.(*net.TCPConn)
						mu.Lock()
						open = append(open, conn)
						mu.Unlock()
						conn.SetDeadline(time.Now().Add(patience))
						c.do(t, conn)
						conn.Close()
					}
				})
			}
			pinged := must(net.Dial("tcp", beside.Spec.Listen[0].Addr.String()))
			pinged.SetDeadline(time.Now().Add(2 * patience))
			eventually(t, "the peers to be at work", func() bool {
				busy, _ := p.loops.Busy()
				return busy[0] > 100*time.Millisecond
			})
			busy, _ := p.loops.Busy()
			rounds := p.loops[0].Rounds()
			var took []time.Duration
			for begun := time.Now(); time.Since(begun) < time.Second || len(took) < 5; {
				before := time.Now()
				if err := ping(pinged); err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(before))
				time.Sleep(2 * time.Millisecond)
			}
			after, _ := p.loops.Busy()
			round := (after[0] - busy[0]) / time.Duration(max(p.loops[0].Rounds()-rounds, 1))
			slices.Sort(took)
			t.Logf("%d pings, half of them within %v; rounds of %v", len(took), took[len(took)/2], round)
			// 2 ms are all the shares together; the rest is for a machine with other work.
			// Without bounds on a round, 115 ms and more are seen on an idle one.
			if round > 80*time.Millisecond {
				t.Errorf("the average round takes %v", round)
			}
			if median := took[len(took)/2]; median > 500*time.Millisecond {
				t.Errorf("half of %d pings took more than %v", len(took), median)
			}
			close(stop)
			mu.Lock()
			for _, conn := range open {
				conn.SetLinger(0)
				conn.Close()
			}
			mu.Unlock()
			pinged.Close()
			p.Kill(l4.Killed)
			peers.Wait()
		})
	}
}

// dribble sends b byte by byte.
func dribble(c *net.TCPConn, b []byte) {
	for i := range b {
		if _, err := c.Write(b[i : i+1]); err != nil {
			return
		}
	}
}
