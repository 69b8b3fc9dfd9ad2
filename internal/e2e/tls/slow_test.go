package tls

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Case O-04 with TLS: one side sends as fast as it can, the other does not read, and
// memory is bounded.
func TestTLSSlowReaders(t *testing.T) {
	ca := rig.NewAuthority(t)
	own := ca.Issue(t, "db.test")
	for _, c := range []slowTLS{{front: true}, {front: true, mirror: true}, {front: true, back: true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { c.run(t, ca, own) })
	}
}

// slowTLS says where there is TLS, and with mirror that it is the backend that does not
// read.
type slowTLS struct{ front, back, mirror bool }

func (s slowTLS) run(t *testing.T, ca *rig.Authority, own rig.Leaf) {
	const readers = 50
	var sent atomic.Int64
	// A slow reader has a small window from the handshake on.
	small := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
	}
	listener, dialer := net.ListenConfig{}, net.Dialer{Timeout: rig.Patience, Control: small}
	if s.mirror {
		listener, dialer = net.ListenConfig{Control: small}, net.Dialer{Timeout: rig.Patience}
	}
	l, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan net.Conn, readers)
	rig.ServeOn(t, l, func(c net.Conn, done <-chan struct{}) {
		if s.back {
			c = tls.Server(c, rig.ServerConfig(own))
			if c.(*tls.Conn).Handshake() != nil {
				return
			}
		}
		if s.mirror {
			arrived <- c
			<-done
			return
		}
		rig.Pour(c, &sent)
	})
	service, pool := "", "check: {type: none}"
	if s.front {
		service = own.ServiceTLS()
	}
	if s.back {
		pool += fmt.Sprintf(", tls: {server_name: db.test, ca: %s}", ca.File)
	}
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, service, pool, rig.Member("db1", l.Addr())))
	before := p.Resident(t)

	var pouring sync.WaitGroup
	defer pouring.Wait()
	var slow []net.Conn
	for range readers {
		tcp, err := dialer.Dial("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		client := tcp
		if s.front {
			client = tls.Client(tcp, ca.ClientConfig("db.test"))
			if err := client.(*tls.Conn).Handshake(); err != nil {
				t.Fatal(err)
			}
		}
		if s.mirror {
			pouring.Go(func() { rig.Pour(client, &sent) })
			slow = append(slow, <-arrived)
		} else {
			slow = append(slow, client)
		}
	}
	// Full is when nothing more goes for a while.
	last, since := int64(-1), time.Now()
	rig.Eventually(t, "the sending to stop", func() bool {
		if n := sent.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
	grown := p.Resident(t) - before
	t.Logf("%d MB sent, resident memory grew by %d kB", sent.Load()>>20, grown>>10)
	if n := sent.Load() / readers; n > rig.KernelBuffers(t) || n == 0 {
		t.Errorf("%d bytes a connection were sent to a side that does not read", n)
	}
	if grown > 20<<20 {
		t.Errorf("resident memory grew by %d bytes", grown)
	}

	var reading sync.WaitGroup
	for _, c := range slow {
		reading.Go(func() {
			_ = c.SetDeadline(time.Now().Add(3 * rig.Patience))
			_ = beneath(c).SetReadBuffer(1 << 20) // or it takes all day
			if err := rig.Sip(c, 2<<20); err != nil {
				t.Error(err)
			}
		})
	}
	reading.Wait()
	for _, c := range slow {
		beneath(c).Close()
	}
	rig.Eventually(t, "the connections to end", func() bool { return p.Status(t).Connections == 0 })
}

// beneath is what a connection goes over.
func beneath(c net.Conn) *net.TCPConn {
	if s, ok := c.(*tls.Conn); ok {
		c = s.NetConn()
	}
	return c.(*net.TCPConn)
}
