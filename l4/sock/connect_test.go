package sock_test

import (
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/l4/sock"
)

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
