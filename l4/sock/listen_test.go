package sock_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

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
		fd, err := sock.Bind(netip.MustParseAddrPort(a), sock.ListenOptions{BindOptions: sock.BindOptions{Freebind: true}})
		if err != nil {
			t.Errorf("%s with freebind: %v", a, err)
			continue
		}
		sock.Close(fd)
	}
}

func TestShare(t *testing.T) {
	_, addr := listen(t, sock.ListenOptions{BindOptions: sock.BindOptions{Share: true}})
	fd, err := sock.Bind(addr, sock.ListenOptions{BindOptions: sock.BindOptions{Share: true}})
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
