package sock_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// wait returns when events has been reported for fd.
func wait(t *testing.T, fd int, events sock.Events) sock.Events {
	t.Helper()
	e, err := sock.NewEpoll()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if errno := e.Add(fd, 7); errno != 0 {
		t.Fatal(errno)
	}
	var b sock.Batch
	for range 50 {
		for i := range e.Wait(&b, 100) {
			if ev := b.Event(i); ev.Events&events != 0 {
				if ev.Tag != 7 || int(ev.FD) != fd {
					t.Fatalf("event %+v of descriptor %d", ev, fd)
				}
				return ev.Events
			}
		}
	}
	t.Fatalf("descriptor %d: no event of %#x", fd, events)
	return 0
}

func listen(t *testing.T, o sock.ListenOptions) (fd int, addr netip.AddrPort) {
	t.Helper()
	fd, err := sock.Bind(netip.MustParseAddrPort("127.0.0.1:0"), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := sock.Listen(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close(fd) })
	return fd, sock.LocalAddr(fd)
}

// connected returns two connected sockets: the one that connected, and the one
// that was accepted.
func connected(t *testing.T) (client, server int) {
	t.Helper()
	l, addr := listen(t, sock.ListenOptions{})
	client, errno := sock.Connect(addr, netip.Addr{}, false)
	if errno != 0 {
		t.Fatal(errno)
	}
	wait(t, l, sock.Readable)
	server, peer, errno := sock.Accept(l)
	if errno != 0 {
		t.Fatal(errno)
	}
	if peer != sock.LocalAddr(client) {
		t.Errorf("peer %v, the client is %v", peer, sock.LocalAddr(client))
	}
	return client, server
}

func TestConnectReadWriteClose(t *testing.T) {
	client, server := connected(t)
	if n, errno := sock.Write(client, []byte("hello")); n != 5 || errno != 0 {
		t.Fatal(n, errno)
	}
	wait(t, server, sock.Readable)
	buf := make([]byte, 16)
	if n, errno := sock.Read(server, buf); string(buf[:n]) != "hello" || errno != 0 {
		t.Fatal(n, errno)
	}
	if n, errno := sock.Read(server, buf); n != 0 || errno != sock.EAGAIN {
		t.Fatalf("nothing there: %d, %v", n, errno)
	}
	if errno := sock.CloseWrite(client); errno != 0 {
		t.Fatal(errno)
	}
	wait(t, server, sock.ReadHup)
	if n, errno := sock.Read(server, buf); n != 0 || errno != 0 {
		t.Fatalf("after a FIN: %d, %v", n, errno)
	}
	sock.Close(client)
	sock.Close(server)
}

func TestReset(t *testing.T) {
	client, server := connected(t)
	sock.Reset(client)
	wait(t, server, sock.Failed)
	if _, errno := sock.Read(server, make([]byte, 1)); errno != sock.ECONNRESET {
		t.Errorf("read: %v", errno)
	}
	if _, errno := sock.Write(server, []byte("x")); errno != sock.EPIPE {
		t.Errorf("write: %v", errno)
	}
	sock.Close(server)
}

func TestConnectRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	fd, errno := sock.Connect(addr, netip.Addr{}, false)
	if errno == 0 {
		wait(t, fd, sock.Failed)
		errno = sock.PendingError(fd)
		sock.Close(fd)
	}
	if errno != sock.ECONNREFUSED {
		t.Errorf("got %v", errno)
	}
}

func TestConnectFromSource(t *testing.T) {
	l, addr := listen(t, sock.ListenOptions{})
	source := netip.MustParseAddr("127.9.8.7")
	fd, errno := sock.Connect(addr, source, false)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer sock.Close(fd)
	wait(t, l, sock.Readable)
	server, peer, errno := sock.Accept(l)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer sock.Close(server)
	if peer.Addr() != source {
		t.Errorf("peer is %v", peer)
	}
	// An address this host does not have is a local error.
	if _, errno := sock.Connect(addr, netip.MustParseAddr("192.0.2.1"), false); errno != sock.EADDRNOTAVAIL {
		t.Errorf("a source that is not ours: %v", errno)
	}
}

func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if _, errno := sock.ConnectUnix(path); errno != sock.ENOENT {
		t.Errorf("no such socket: %v", errno)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, errno := sock.ConnectUnix(path)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer sock.Close(fd)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, errno := sock.Write(fd, []byte("hi")); errno != 0 {
		t.Fatal(errno)
	}
	buf := make([]byte, 2)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hi" {
		t.Errorf("%q, %v", buf, err)
	}
	long := make([]byte, 200)
	if _, errno := sock.ConnectUnix(string(long)); errno == 0 {
		t.Error("a path that does not fit was taken")
	}
}

// A full queue is EAGAIN, and leaves no descriptor behind.
func TestUnixQueueFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(l)
	if err := syscall.Bind(l, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(l, 0); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		fd, errno := sock.ConnectUnix(path)
		if errno == sock.EAGAIN {
			return
		}
		if errno != 0 {
			t.Fatal(errno)
		}
		defer sock.Close(fd)
	}
	t.Error("ten connections fit into a queue of none")
}

func TestUnackedFallsToZero(t *testing.T) {
	client, server := connected(t)
	defer sock.Close(client)
	defer sock.Close(server)
	chunk := make([]byte, 1<<20)
	for {
		if _, errno := sock.Write(client, chunk); errno == sock.EAGAIN {
			break
		}
	}
	if sock.Unacked(client) == 0 {
		t.Error("a full socket has nothing unacknowledged")
	}
	buf := make([]byte, 1<<20)
	deadline := time.Now().Add(10 * time.Second)
	for sock.Unacked(client) > 0 && time.Now().Before(deadline) {
		sock.Read(server, buf)
	}
	if n := sock.Unacked(client); n != 0 {
		t.Errorf("%d bytes unacknowledged", n)
	}
}

func TestPipeMovesBytes(t *testing.T) {
	a, b := connected(t)
	c, d := connected(t)
	for _, fd := range []int{a, b, c, d} {
		defer sock.Close(fd)
	}
	p, errno := sock.NewPipe()
	if errno != 0 {
		t.Fatal(errno)
	}
	defer p.Close()
	if !p.Valid() || (sock.Pipe{}).Valid() {
		t.Error("Valid is wrong")
	}
	if _, errno := p.Fill(b, 100); errno != sock.EAGAIN {
		t.Errorf("empty socket: %v", errno)
	}
	sock.Write(a, []byte("spliced"))
	wait(t, b, sock.Readable)
	n, errno := p.Fill(b, 100)
	if n != 7 || errno != 0 {
		t.Fatal(n, errno)
	}
	if n, errno = p.Drain(c, n); n != 7 || errno != 0 {
		t.Fatal(n, errno)
	}
	wait(t, d, sock.Readable)
	buf := make([]byte, 16)
	if n, _ := sock.Read(d, buf); string(buf[:n]) != "spliced" {
		t.Errorf("got %q", buf[:n])
	}
	sock.CloseWrite(a)
	wait(t, b, sock.ReadHup)
	if n, errno := p.Fill(b, 100); n != 0 || errno != 0 {
		t.Errorf("at the end of the stream: %d, %v", n, errno)
	}
}

func TestBindErrors(t *testing.T) {
	_, taken := listen(t, sock.ListenOptions{})
	if _, err := sock.Bind(taken, sock.ListenOptions{}); !errors.Is(err, sock.EADDRINUSE) {
		t.Errorf("a taken port: %v", err)
	}
	foreign := netip.MustParseAddrPort("192.0.2.1:0")
	if _, err := sock.Bind(foreign, sock.ListenOptions{}); !errors.Is(err, sock.EADDRNOTAVAIL) {
		t.Errorf("a foreign address: %v", err)
	}
	for _, a := range []string{"192.0.2.1:0", "[2001:db8::1]:0"} {
		fd, err := sock.Bind(netip.MustParseAddrPort(a), sock.ListenOptions{Freebind: true})
		if err != nil {
			t.Errorf("%s with freebind: %v", a, err)
			continue
		}
		sock.Close(fd)
	}
}

func TestShare(t *testing.T) {
	_, addr := listen(t, sock.ListenOptions{Share: true})
	fd, err := sock.Bind(addr, sock.ListenOptions{Share: true})
	if err != nil {
		t.Fatal(err)
	}
	sock.Close(fd)
}

func TestDualStack(t *testing.T) {
	fd, err := sock.Bind(netip.MustParseAddrPort("[::]:0"), sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close(fd)
	if err := sock.Listen(fd); err != nil {
		t.Fatal(err)
	}
	port := sock.LocalAddr(fd).Port()
	client, errno := sock.Connect(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), netip.Addr{}, false)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer sock.Close(client)
	wait(t, fd, sock.Readable)
	server, peer, errno := sock.Accept(fd)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer sock.Close(server)
	if !peer.Addr().Is4() || !sock.LocalAddr(server).Addr().Is4() {
		t.Errorf("an IPv4 client of a dual-stack listener shows as %v -> %v", peer, sock.LocalAddr(server))
	}
}

// What a listener refuses is only what has not begun: its queue can be emptied.
func TestRefuseNew(t *testing.T) {
	l, addr := listen(t, sock.ListenOptions{})
	early, errno := sock.Connect(addr, netip.Addr{}, false)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer sock.Close(early)
	wait(t, early, sock.Writable)
	if errno := sock.RefuseNew(l); errno != 0 {
		t.Fatal(errno)
	}
	if c, err := net.DialTimeout("tcp", addr.String(), 200*time.Millisecond); err == nil {
		c.Close()
		t.Error("a new connection was taken")
	} else if !os.IsTimeout(err) {
		t.Errorf("a new connection met %v", err)
	}
	fd, _, errno := sock.Accept(l)
	if errno != 0 {
		t.Fatalf("the early one is lost: %v", errno)
	}
	defer sock.Close(fd)
	sock.Write(early, []byte("x"))
	wait(t, fd, sock.Readable)
}

func TestAcceptedInheritKeepalive(t *testing.T) {
	l, addr := listen(t, sock.ListenOptions{KeepaliveIdle: 33, KeepaliveInterval: 4, KeepaliveProbes: 5})
	accept := func() (idle, on, noDelay int) {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		wait(t, l, sock.Readable)
		fd, _, errno := sock.Accept(l)
		if errno != 0 {
			t.Fatal(errno)
		}
		defer sock.Close(fd)
		idle, _ = syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
		on, _ = syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		noDelay, _ = syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
		return idle, on, noDelay
	}
	if idle, on, noDelay := accept(); idle != 33 || on == 0 || noDelay == 0 {
		t.Errorf("keepalive %d, idle %d, no-delay %d", on, idle, noDelay)
	}
	sock.ListenOptions{}.SetInherited(l)
	if _, on, _ := accept(); on != 0 {
		t.Error("keepalive is still on")
	}
}

func TestCallsAllocateNothing(t *testing.T) {
	client, server := connected(t)
	defer sock.Close(client)
	defer sock.Close(server)
	buf := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		sock.Write(client, buf[:1])
		sock.Read(server, buf)
		sock.Read(server, buf) // EAGAIN
		sock.PendingError(server)
		sock.Unacked(client)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDescriptors(t *testing.T) {
	if sock.DescriptorLimit() < 16 {
		t.Errorf("limit %d", sock.DescriptorLimit())
	}
	before := sock.OpenDescriptors()
	p, errno := sock.NewPipe()
	if errno != 0 {
		t.Fatal(errno)
	}
	if got := sock.OpenDescriptors() - before; got != 2 {
		t.Errorf("a pipe is %d descriptors", got)
	}
	p.Close()
}
