package sock_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4/sock"
)

// steered opens n sockets at an address, which share it.
func steered(t *testing.T, addr netip.AddrPort, n int, o sock.UDPOptions) (fds []int) {
	t.Helper()
	o.Share = true
	for range n {
		fd, err := sock.BindUDP(addr, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sock.Close(fd) })
		fds = append(fds, fd)
	}
	if errno := sock.Steer(fds[0], n, 0x12345677); errno != 0 {
		t.Fatal(errno)
	}
	return fds
}

// who returns for each of the datagrams, which are numbered, the socket it came to.
func who(t *testing.T, fds []int, clients []*net.UDPConn) map[byte]int {
	t.Helper()
	for i, c := range clients {
		if _, err := c.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[byte]int{}
	in := sock.NewInbox(len(clients), true)
	for number, fd := range fds {
		n, _ := in.Receive(fd, 0, in.Len()) // loopback delivers before Write returns
		for i := range n {
			got[in.Payload(i)[0]] = number
		}
	}
	return got
}

// Whatever address a client uses, a wildcard or not, it has the socket of the same
// number; one that is withdrawn gives way to the next.
func TestSteer(t *testing.T) {
	const sockets = 3
	for _, to := range []string{"127.0.0.1", "::1"} {
		a := netip.MustParseAddr(to)
		probe, at := bindUDP(t, netip.AddrPortFrom(a, 0).String(), sock.UDPOptions{})
		sock.Close(probe)
		at = netip.AddrPortFrom(a, at.Port())
		clients := make([]*net.UDPConn, 100)
		for i := range clients {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
		}
		groups := [][]int{steered(t, at, sockets, sock.UDPOptions{})}
		if a.Is4() {
			groups = append(groups, steered(t, netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), sockets, sock.UDPOptions{}))
		}
		groups = append(groups, steered(t, netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port()), sockets, sock.UDPOptions{}))
		var first map[byte]int
		for i, group := range groups {
			got := who(t, group, clients)
			if len(got) != len(clients) {
				t.Fatalf("%s, group %d: %d of %d came", to, i, len(got), len(clients))
			}
			share := [sockets]int{}
			for _, number := range got {
				share[number]++
			}
			if first == nil {
				first = got
			}
			for c, number := range got {
				if first[c] != number {
					t.Fatalf("%s, group %d: client %d moved from socket %d to %d", to, i, c, first[c], number)
				}
			}
			for _, n := range share {
				if n < len(clients)/sockets/3 {
					t.Errorf("%s: shares of %v", to, share)
				}
			}
			for _, fd := range group {
				if errno := sock.Withdraw(fd); errno != 0 {
					t.Fatal(errno)
				}
			}
		}
	}
}

// The queue of a socket that is withdrawn can still be read, and connections that wait
// in one of TCP are not reset.
func TestWithdraw(t *testing.T) {
	fd, at := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{})
	c := connectUDP(t, at, netip.Addr{})
	sock.Write(c, []byte("before"))
	if errno := sock.Withdraw(fd); errno != 0 {
		t.Fatal(errno)
	}
	sock.Write(c, []byte("after"))
	wait(t, c, sock.Failed) // refused
	in := sock.NewInbox(2, true)
	if n, _ := in.Receive(fd, 0, 2); n != 1 || string(in.Payload(0)) != "before" {
		t.Errorf("%d datagrams", n)
	}
}

func TestPeerMapped(t *testing.T) {
	four, at4 := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{})
	dual, at6 := bindUDP(t, "[::]:0", sock.UDPOptions{})
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var peers []sock.Peer
	for i, fd := range []int{four, dual} {
		at := []netip.AddrPort{at4, netip.AddrPortFrom(at4.Addr(), at6.Port())}[i]
		if _, err := c.WriteToUDPAddrPort([]byte("x"), at); err != nil {
			t.Fatal(err)
		}
		in := sock.NewInbox(1, true)
		receive(t, in, fd)
		peers = append(peers, in.Peer(0))
	}
	if peers[0].Mapped() != peers[1] || peers[1].Mapped() != peers[1] || peers[1].Unmapped() != peers[0] {
		t.Errorf("%v and %v", peers[0], peers[1])
	}
}
