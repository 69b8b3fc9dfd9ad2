package sock_test

import (
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4/sock"
)

// A descriptor that is closed while its socket lives on is reported no more.
func TestEpollDelete(t *testing.T) {
	e, err := sock.NewEpoll()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	fd, err := sock.BindUDP(netip.MustParseAddrPort("127.0.0.1:0"), sock.UDPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close(fd)
	other, err := sock.Duplicate(fd)
	if err != nil {
		t.Fatal(err)
	}
	if errno := e.AddDatagrams(other, 1); errno != 0 {
		t.Fatal(errno)
	}
	peer, errno := sock.ConnectUDP(sock.LocalAddr(fd), netip.Addr{}, false)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer sock.Close(peer)
	var b sock.Batch
	for _, want := range []int{1, 0} {
		if _, errno := sock.Write(peer, []byte("x")); errno != 0 {
			t.Fatal(errno)
		}
		if n := e.Poll(&b, 0); n != want {
			t.Errorf("%d events, want %d", n, want)
		}
		if want == 1 {
			e.Delete(other)
			sock.Close(other)
		}
	}
}

// A socket that was passed is described as it is; what is none is refused.
func TestReceive(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		addr := netip.MustParseAddrPort(at)
		for _, v6only := range []bool{false, true} {
			o := sock.BindOptions{V6Only: v6only}
			stream, err := sock.Bind(addr, sock.ListenOptions{BindOptions: o})
			if err != nil {
				t.Fatal(err)
			}
			datagrams, err := sock.BindUDP(addr, sock.UDPOptions{BindOptions: o})
			if err != nil {
				t.Fatal(err)
			}
			for _, fd := range []int{stream, datagrams} {
				p, err := sock.Receive(fd)
				if err != nil {
					t.Fatal(err)
				}
				if p.Stream != (fd == stream) || p.Addr != sock.LocalAddr(fd) || p.V6Only != (addr.Addr().Is6() && (v6only || !addr.Addr().IsUnspecified())) || p.FD == fd {
					t.Errorf("%s, v6only %v: %+v", at, v6only, p)
				}
				sock.Close(p.FD)
				sock.Close(fd)
			}
		}
	}
	if p, err := sock.Receive(-1); err == nil {
		t.Errorf("no descriptor is %+v", p)
	}
}
