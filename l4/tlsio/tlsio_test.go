package tlsio_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tlsio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var certificate = sync.OnceValue(func() tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a.test"}, DNSNames: []string{"a.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
	}
	der := must(x509.CreateCertificate(rand.Reader, tpl, tpl, key.Public(), key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

func serverConfig(version uint16) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate()}, MinVersion: version, MaxVersion: version}
}

func clientConfig() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "a.test"}
}

var versions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

// A driven is a Conn on a loop, which does with it what a relay would; the test is
// the peer. All but what is under mu is the loop's once drive has returned.
type driven struct {
	*tlsio.Conn
	t       *testing.T
	loop    *loop.Loop
	fd      int // -1 when closed
	shaking bool
	over    chan error    // how the handshake ended
	ended   chan struct{} // closed at the end of the peer's stream
	echoes  bool          // writes what it reads, and ends when the peer does
	greedy  bool          // reads on when it cannot write
	pending []byte        // to be written
	fin     bool          // and then the end
	turns   atomic.Int64

	mu  sync.Mutex
	got bytes.Buffer
	end sock.Errno
}

// socketpair returns a descriptor of ours and the peer of it as a TCP connection.
func socketpair(t *testing.T) (int, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	peer.SetDeadline(time.Now().Add(2 * patience))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	return fd, peer.(*net.TCPConn)
}

// drive runs the accepting side of a connection on a loop, to which received has
// been read already.
func drive(t *testing.T, config *tls.Config, received []byte, adjust ...func(*driven)) (*driven, *net.TCPConn) {
	t.Helper()
	fd, peer := socketpair(t)
	loops, err := loop.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	d := &driven{t: t, loop: loops[0], fd: fd, shaking: true, over: make(chan error, 1), ended: make(chan struct{})}
	for _, f := range adjust {
		f(d)
	}
	d.do(func() {
		d.Conn = tlsio.Server(fd, config, d.loop)
		d.Handshake(received, func(err error) {
			d.shaking = false
			d.over <- err
			if err == nil {
				d.move()
			}
		})
		if errno := d.loop.Add(fd, d); errno != 0 {
			t.Error(errno)
		}
	})
	t.Cleanup(func() {
		d.do(d.close)
		loops.Stop()
	})
	return d, peer
}

// do runs f on the loop and waits for it.
func (d *driven) do(f func()) {
	done := make(chan struct{})
	if d.loop.Post(func() { f(); close(done) }) {
		<-done
	}
}

func (d *driven) close() {
	if d.fd >= 0 {
		d.Abort()
		d.loop.Remove(d.fd)
		sock.Close(d.fd)
		d.fd = -1
	}
}

func (d *driven) Ready(ev sock.Events) {
	d.turns.Add(1)
	d.Conn.Ready(ev&(sock.ReadHup|sock.Hup|sock.Failed) != 0)
	if d.shaking {
		d.Flush()
		d.Fill(make([]byte, 64<<10))
		return
	}
	d.move()
}

// move does what is possible: it writes what is pending, and then reads.
func (d *driven) move() {
	buf := make([]byte, 1+mathrand.IntN(64<<10))
	for d.fd >= 0 {
		if _, errno := d.Flush(); errno != 0 && !d.greedy {
			return
		}
		switch {
		case len(d.pending) > 0:
			n, errno := d.Write(d.pending[:min(len(d.pending), 64<<10)])
			if d.pending = d.pending[n:]; errno != 0 && errno != sock.EAGAIN {
				return
			}
			continue
		case d.fin:
			d.fin = false
			if errno := d.CloseNotify(); errno != 0 && errno != sock.EAGAIN {
				d.t.Errorf("close_notify: %v", errno)
			}
			continue
		}
		select {
		case <-d.ended:
			return
		default:
		}
		n, errno := d.Read(buf)
		if errno == sock.EAGAIN {
			return
		}
		d.mu.Lock()
		d.got.Write(buf[:n])
		d.end = errno
		d.mu.Unlock()
		if d.echoes {
			d.pending = append(d.pending, buf[:n]...)
		}
		if n == 0 {
			d.fin = d.echoes && errno == 0
			close(d.ended)
		}
	}
}

func (d *driven) received() ([]byte, sock.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.Clone(d.got.Bytes()), d.end
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

func handshaken(t *testing.T, d *driven) {
	t.Helper()
	select {
	case err := <-d.over:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the handshake does not end")
	}
}
