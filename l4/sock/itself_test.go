package sock_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/l4/sock"
)

// Case O-44: a socket whose port is the one that it connects to is told from others.
func TestMeetsItself(t *testing.T) {
	for _, c := range []struct {
		name, at string
		kind     int
	}{
		{"TCP", "127.0.0.1", unix.SOCK_STREAM},
		{"TCP over IPv6", "::1", unix.SOCK_STREAM},
		{"UDP", "127.0.0.1", unix.SOCK_DGRAM},
		{"UDP over IPv6", "::1", unix.SOCK_DGRAM},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := netip.MustParseAddr(c.at)
			itself, other := bound(t, c.kind, addr), bound(t, c.kind, addr)
			dst := sock.LocalAddr(itself)
			connectTo(t, itself, dst)
			if !sock.MeetsItself(itself, dst) {
				t.Errorf("%v is connected to itself", dst)
			}
			connectTo(t, other, dst)
			if sock.MeetsItself(other, dst) {
				t.Errorf("%v is not %v", sock.LocalAddr(other), dst)
			}
		})
	}
}

func TestIsSame(t *testing.T) {
	for _, c := range []struct {
		local, dst string
		want       bool
	}{
		{"127.0.0.1:40000", "127.0.0.1:40000", true},
		{"127.0.0.1:40000", "[::ffff:127.0.0.1]:40000", true},
		{"127.0.0.1:40000", "127.0.0.1:40001", false},
		{"127.0.0.1:40000", "127.0.0.2:40000", false},
		{"[fe80::1]:40000", "[fe80::1%eth0]:40000", true},
		{"[::1]:40000", "127.0.0.1:40000", false},
	} {
		if got := sock.IsSame(netip.MustParseAddrPort(c.local), netip.MustParseAddrPort(c.dst)); got != c.want {
			t.Errorf("%s, %s: %v", c.local, c.dst, got)
		}
	}
}

// bound opens a socket with a free port at addr.
func bound(t *testing.T, kind int, addr netip.Addr) int {
	t.Helper()
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close(fd) })
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(addr, 0))); err != nil {
		t.Fatal(err)
	}
	return fd
}

// connectTo begins to connect a socket, whatever becomes of it.
func connectTo(t *testing.T, fd int, dst netip.AddrPort) {
	t.Helper()
	if err := unix.Connect(fd, sockaddr(dst)); err != nil && err != unix.EINPROGRESS && err != unix.ECONNREFUSED {
		t.Fatal(err)
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func TestIsOwn(t *testing.T) {
	for a, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true,
		"192.0.2.1": false, "2001:db8::1": false, // of documents (RFC 5737, RFC 3849)
	} {
		if got := sock.IsOwn(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
}
