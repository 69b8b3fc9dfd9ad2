package tcp_test

import (
	"bytes"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// urge writes urgent data: the last byte of b is marked.
func urge(t *testing.T, c *net.TCPConn, b string) {
	t.Helper()
	rc, err := c.SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	err = rc.Write(func(fd uintptr) bool {
		n, err := syscall.SendmsgN(int(fd), []byte(b), nil, nil, syscall.MSG_OOB)
		if err == nil && n != len(b) {
			t.Errorf("%d of %d urgent bytes", n, len(b))
		}
		return err != syscall.EAGAIN
	})
	if err != nil {
		t.Error(err)
	}
}

// cork keeps what is written to c together, in as few segments as there can be.
func cork(t *testing.T, c *net.TCPConn, on int) {
	t.Helper()
	rc, err := c.SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	const tcpCork = 3
	rc.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpCork, on) })
}

// Urgent data stays in its place in the stream, from either side, however much is before
// and behind it, and whatever else is done on the way. The mark itself, which only the
// socket API knows of, is not passed on.
func TestUrgentData(t *testing.T) {
	type part struct {
		text   string
		urgent bool
		alone  bool // is sent when what came before has arrived
	}
	bulk := string(noise(600_000))
	streams := map[string][]part{
		"in one segment":      {{text: "abc"}, {text: "!", urgent: true}, {text: "def"}},
		"first and last":      {{text: "!", urgent: true}, {text: "abc"}, {text: "?", urgent: true}},
		"alone":               {{text: "abc"}, {text: "!", urgent: true, alone: true}, {text: "def", alone: true}, {text: "?", urgent: true, alone: true}},
		"one after the other": {{text: "abc!", urgent: true}, {text: "?", urgent: true}, {text: ".", urgent: true}},
		"in bulk":             {{text: bulk}, {text: "!", urgent: true}, {text: bulk}, {text: "?", urgent: true}},
		"at a buffer's end":   {{text: bulk[:64<<10]}, {text: "!", urgent: true}, {text: bulk[:64<<10-1]}, {text: "?", urgent: true}, {text: "x"}},
	}
	for _, m := range modes {
		for _, fromBackend := range []bool{false, true} {
			if sender := m.front || m.sni; !fromBackend && sender || fromBackend && (m.back || m.sni) {
				continue // in TLS there is no telling the bytes that are urgent
			}
			for name, parts := range streams {
				who := "client"
				if fromBackend {
					who = "backend"
				}
				t.Run(m.name+"/"+who+"/"+name, func(t *testing.T) {
					want, got := "", make(chan string, 1)
					arrived := make(chan int, 1000)
					send := func(c *net.TCPConn) {
						cork(t, c, 1)
						n := 0
						for _, p := range parts {
							if p.alone {
								cork(t, c, 0)
								for n > 0 {
									n -= <-arrived
								}
							}
							if p.urgent {
								urge(t, c, p.text)
							} else {
								io.WriteString(c, p.text)
							}
							n += len(p.text)
						}
						cork(t, c, 0)
						c.CloseWrite()
					}
					receive := func(r io.Reader) {
						var all bytes.Buffer
						for b := make([]byte, 100_000); ; {
							n, err := r.Read(b)
							all.Write(b[:n])
							select {
							case arrived <- n:
							default:
							}
							if err != nil {
								got <- all.String()
								return
							}
						}
					}
					for _, p := range parts {
						want += p.text
					}
					p := m.through(t, func(e end) {
						if fromBackend {
							e.Read(make([]byte, 1))
							send(raw(e))
							io.Copy(io.Discard, e)
						} else {
							receive(e)
						}
					})
					c := p.dial()
					e := m.client(t, c)
					if fromBackend {
						e.Write([]byte("x"))
						receive(e)
					} else {
						send(c)
					}
					select {
					case s := <-got:
						if s != want {
							t.Errorf("%d bytes of %d arrived, or others; %.20q", len(s), len(want), s)
						}
					case <-time.After(patience):
						t.Error("it does not arrive")
					}
				})
			}
		}
	}
}
