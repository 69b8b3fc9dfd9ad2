package sock_test

import (
	"net/netip"
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
