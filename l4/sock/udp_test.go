package sock_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/l4/sock"
)

func bindUDP(t *testing.T, addr string, o sock.UDPOptions) (fd int, at netip.AddrPort) {
	t.Helper()
	fd, err := sock.BindUDP(netip.MustParseAddrPort(addr), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close(fd) })
	return fd, sock.LocalAddr(fd)
}

func connectUDP(t *testing.T, to netip.AddrPort, source netip.Addr) int {
	t.Helper()
	fd, errno := sock.ConnectUDP(to, source, false)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { sock.Close(fd) })
	return fd
}

// receive takes all that is waiting at fd, which is at least one datagram.
func receive(t *testing.T, in *sock.Inbox, fd int) int {
	t.Helper()
	wait(t, fd, sock.Readable)
	n, errno := in.Receive(fd, 0, in.Len())
	if errno != 0 {
		t.Fatal(errno)
	}
	return n
}

func send(t *testing.T, o *sock.Outbox, fd int) {
	t.Helper()
	if _, errno := o.Send(fd); errno != 0 {
		t.Fatal(errno)
	}
	if !o.Empty() {
		t.Fatal("something is left")
	}
}

// What a datagram came from and to, over every kind of socket.
func TestUDPAddresses(t *testing.T) {
	for _, c := range []struct {
		listen, to string
		o          sock.UDPOptions
		local      string // "" = not told
	}{
		{"127.0.0.1:0", "127.0.0.1", sock.UDPOptions{}, ""},
		{"0.0.0.0:0", "127.0.0.7", sock.UDPOptions{LocalAddr: true}, "127.0.0.7"},
		{"[::1]:0", "::1", sock.UDPOptions{BindOptions: sock.BindOptions{V6Only: true}}, ""},
		{"[::]:0", "::1", sock.UDPOptions{LocalAddr: true}, "::1"},
		{"[::]:0", "127.0.0.9", sock.UDPOptions{LocalAddr: true}, "127.0.0.9"},
	} {
		t.Run(c.listen+" "+c.to, func(t *testing.T) {
			fd, at := bindUDP(t, c.listen, c.o)
			to := netip.AddrPortFrom(netip.MustParseAddr(c.to), at.Port())
			client := connectUDP(t, to, netip.Addr{})
			in, out := sock.NewInbox(4, true), sock.NewOutbox(4)
			sock.Write(client, []byte("hello"))
			if n := receive(t, in, fd); n != 1 || string(in.Payload(0)) != "hello" || !in.Whole(0) {
				t.Fatalf("%d datagrams, the first is %q", n, in.Payload(0))
			}
			if got, want := in.Peer(0).AddrPort(), sock.LocalAddr(client); got != want {
				t.Errorf("from %v, want %v", got, want)
			}
			local, segment, _ := in.Details(0)
			want := netip.Addr{}
			if c.local != "" {
				want = netip.MustParseAddr(c.local)
			}
			if local.Addr() != want || segment != 0 {
				t.Errorf("came to %v, want %v; segment %d", local.Addr(), want, segment)
			}
			// The client is connected: it takes the answer only from where it asked.
			out.Add(&sock.Destination{Peer: in.Peer(0), From: local}, nil, []byte("answer"), 0)
			send(t, out, fd)
			wait(t, client, sock.Readable)
			buf := make([]byte, 16)
			if n, _ := sock.Read(client, buf); string(buf[:n]) != "answer" {
				t.Errorf("got %q", buf[:n])
			}
		})
	}
}

// One inbox serves sockets of both families: nothing of an earlier peer may be left.
func TestPeersAreComparable(t *testing.T) {
	fd6, at6 := bindUDP(t, "[::1]:0", sock.UDPOptions{})
	fd4, at4 := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{})
	c6, c4 := connectUDP(t, at6, netip.Addr{}), connectUDP(t, at4, netip.Addr{})
	in := sock.NewInbox(1, true)
	var seen []sock.Peer
	for range 2 {
		sock.Write(c4, nil)
		receive(t, in, fd4)
		seen = append(seen, in.Peer(0))
		sock.Write(c6, nil)
		receive(t, in, fd6)
		seen = append(seen, in.Peer(0))
	}
	if seen[0] != seen[2] || seen[1] != seen[3] || seen[0] == seen[1] {
		t.Errorf("peers %v", seen)
	}
	if (sock.Peer{}).AddrPort().IsValid() || (sock.Local{}).Addr().IsValid() {
		t.Error("zero values are valid")
	}
}

func TestUDPBindErrors(t *testing.T) {
	_, taken := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{BindOptions: sock.BindOptions{Share: true}})
	if _, err := sock.BindUDP(taken, sock.UDPOptions{}); !errors.Is(err, sock.EADDRINUSE) {
		t.Errorf("a taken port: %v", err)
	}
	if fd, err := sock.BindUDP(taken, sock.UDPOptions{BindOptions: sock.BindOptions{Share: true}}); err != nil {
		t.Errorf("sharing: %v", err)
	} else {
		sock.Close(fd)
	}
	foreign := netip.MustParseAddrPort("192.0.2.1:0")
	if _, err := sock.BindUDP(foreign, sock.UDPOptions{}); !errors.Is(err, sock.EADDRNOTAVAIL) {
		t.Errorf("a foreign address: %v", err)
	}
	for _, a := range []string{"192.0.2.1:0", "[2001:db8::1]:0"} {
		bindUDP(t, a, sock.UDPOptions{BindOptions: sock.BindOptions{Freebind: true}})
	}
}

func TestConnectUDPSource(t *testing.T) {
	fd, at := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{})
	source := netip.MustParseAddr("127.9.8.7")
	c := connectUDP(t, at, source)
	sock.Write(c, []byte("x"))
	in := sock.NewInbox(1, true)
	receive(t, in, fd)
	if got := in.Peer(0).AddrPort(); got.Addr() != source || got != sock.LocalAddr(c) {
		t.Errorf("from %v", got)
	}
	for _, bad := range []string{"192.0.2.1", "::1"} {
		if _, errno := sock.ConnectUDP(at, netip.MustParseAddr(bad), false); errno != sock.EADDRNOTAVAIL {
			t.Errorf("from %s: %v", bad, errno)
		}
	}
}

// An ICMP error is told once, by the next call, and hides nothing.
func TestRefusedDatagram(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.LocalAddr().String())
	l.Close()
	c := connectUDP(t, at, netip.Addr{})
	sock.Write(c, []byte("x"))
	wait(t, c, sock.Failed)
	in := sock.NewInbox(1, false)
	if _, errno := in.Receive(c, 0, 1); errno != sock.ECONNREFUSED {
		t.Errorf("receive: %v", errno)
	}
	if _, errno := in.Receive(c, 0, 1); errno != sock.EAGAIN {
		t.Errorf("a second time: %v", errno)
	}
	sock.Write(c, []byte("x"))
	wait(t, c, sock.Failed)
	out := sock.NewOutbox(2)
	out.Add(&sock.Destination{}, nil, []byte("first"), 0)
	out.Add(&sock.Destination{}, nil, []byte("no longer one size"), 0)
	if i, errno := out.Send(c); i != 0 || errno != sock.ECONNREFUSED {
		t.Fatalf("send: message %d, %v", i, errno)
	}
	if n, size := out.Failed(); n != 1 || size != 5 {
		t.Errorf("failed: %d datagrams, %d bytes", n, size)
	}
	out.Drop()
	if out.Empty() {
		t.Error("the second message is lost too")
	}
}

func TestDeaf(t *testing.T) {
	fd, at := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{})
	c := connectUDP(t, at, netip.Addr{})
	if errno := sock.Deaf(c); errno != 0 {
		t.Fatal(errno)
	}
	sock.Write(c, []byte("x"))
	in, out := sock.NewInbox(1, true), sock.NewOutbox(1)
	receive(t, in, fd)
	out.Add(&sock.Destination{Peer: in.Peer(0)}, nil, []byte("answer"), 0)
	send(t, out, fd)
	if _, errno := sock.Read(c, make([]byte, 1)); errno != sock.EAGAIN {
		t.Errorf("it heard something: %v", errno)
	}
	sock.Close(fd)
	sock.Write(c, []byte("x"))
	wait(t, c, sock.Failed)
}

// Datagrams of one size leave as one message, whatever does not fit it by itself;
// they arrive as they were, by whichever way they came.
func TestTrains(t *testing.T) {
	sizes := [][]int{
		{100, 100, 100, 40},            // the last one may be shorter
		{100, 100, 40, 100},            // and nothing follows it
		{100, 120},                     // or longer
		{0, 0, 1, 1, 0},                // nothing is a size of its own
		slices.Repeat([]int{10}, 200),  // more than one train may have
		slices.Repeat([]int{9000}, 30), // larger than one may be
		slices.Repeat([]int{sock.MaxDatagram}, 3),
	}
	for _, gro := range []bool{true, false} {
		for _, want := range sizes {
			var fd int
			var at netip.AddrPort
			if gro {
				fd, at = bindUDP(t, "127.0.0.1:0", sock.UDPOptions{Buffer: 8 << 20})
			} else {
				l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				l.SetReadBuffer(8 << 20)
				f, err := l.File()
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				fd, at = int(f.Fd()), netip.MustParseAddrPort(l.LocalAddr().String())
				syscall.SetNonblock(fd, true)
			}
			c := connectUDP(t, at, netip.Addr{})
			sock.SetUDPBuffer(c, 8<<20)
			out := sock.NewOutbox(len(want))
			payload := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, want[i]) }
			for i := range want {
				if !out.Join(payload(i), 0) {
					out.Add(&sock.Destination{}, nil, payload(i), 0)
				}
			}
			send(t, out, c)
			in := sock.NewInbox(64, true)
			for i := 0; i < len(want); {
				n := receive(t, in, fd)
				for slot := range n {
					_, segment, _ := in.Details(slot)
					if segment > 0 && !gro {
						t.Error("a train that nobody asked for")
					}
					for rest := in.Payload(slot); ; i++ {
						size := len(rest)
						if segment > 0 {
							size = min(size, segment)
						}
						if i == len(want) || !bytes.Equal(rest[:size], payload(i)) {
							t.Fatalf("gro %v, %v: datagram %d is wrong", gro, want, i)
						}
						if rest = rest[size:]; len(rest) == 0 {
							i++
							break
						}
					}
				}
			}
		}
	}
}

// A socket without checksums is one of those that cannot send trains.
func TestSplit(t *testing.T) {
	fd, at := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{})
	c := connectUDP(t, at, netip.Addr{})
	if err := syscall.SetsockoptInt(c, syscall.SOL_SOCKET, syscall.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	out := sock.NewOutbox(3)
	out.Add(&sock.Destination{}, nil, []byte("aabb"), 2)
	if !out.Join([]byte("ccd"), 2) || out.Join([]byte("e"), 0) {
		t.Fatal("a train ends with what is shorter")
	}
	out.Add(&sock.Destination{}, []byte("head"), []byte("er"), 0)
	if i, errno := out.Send(c); i != 0 || errno != sock.EINVAL {
		t.Fatalf("message %d: %v", i, errno)
	}
	if n, size := out.Failed(); n != 4 || size != 7 {
		t.Errorf("%d datagrams, %d bytes", n, size)
	}
	out.Split(c, func(why sock.Errno, bytes int) { t.Errorf("%d bytes lost: %v", bytes, why) })
	send(t, out, c)
	in := sock.NewInbox(8, true)
	n := receive(t, in, fd)
	var got []string
	for i := range n {
		got = append(got, string(in.Payload(i)))
	}
	if !slices.Equal(got, []string{"aa", "bb", "cc", "d", "header"}) {
		t.Errorf("got %q", got)
	}
}

func TestTooLargeForADatagram(t *testing.T) {
	_, at := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{})
	c := connectUDP(t, at, netip.Addr{})
	out := sock.NewOutbox(1)
	out.Add(&sock.Destination{}, []byte("header"), make([]byte, sock.MaxDatagram), 0)
	if _, errno := out.Send(c); errno != sock.EMSGSIZE {
		t.Errorf("%v", errno)
	}
}

func TestDatagramsAllocateNothing(t *testing.T) {
	fd, at := bindUDP(t, "0.0.0.0:0", sock.UDPOptions{LocalAddr: true})
	c := connectUDP(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port()), netip.Addr{})
	in, out := sock.NewInbox(4, true), sock.NewOutbox(4)
	payload := make([]byte, 64)
	buf := make([]byte, 64)
	var to sock.Destination
	if n := testing.AllocsPerRun(200, func() {
		sock.Write(c, payload)
		n, _ := in.Receive(fd, 0, in.Len())
		for i := range n {
			to.Peer = in.Peer(i)
			to.From, _, _ = in.Details(i)
			if !out.Join(in.Payload(i), 0) {
				out.Add(&to, nil, in.Payload(i), 0)
			}
		}
		out.Send(fd)
		sock.Read(c, buf)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDescriptorBudget(t *testing.T) {
	var d sock.Descriptors
	if d.Take(1) {
		t.Error("something was taken before it was measured")
	}
	d.Measure()
	left := int64(0)
	for d.Take(1) {
		left++
	}
	limit := int64(sock.DescriptorLimit())
	if reserve := limit - int64(sock.OpenDescriptors()) - left; reserve < 16 {
		t.Errorf("%d of %d kept back", reserve, limit)
	}
	d.Refresh()
	d.Give(1)
	if !d.Take(1) || d.Take(1) {
		t.Error("one was given back, not more")
	}
}

func TestOverflowed(t *testing.T) {
	fd, at := bindUDP(t, "127.0.0.1:0", sock.UDPOptions{Buffer: 1 << 12})
	c := connectUDP(t, at, netip.Addr{})
	if n := sock.Overflowed(fd); n != 0 {
		t.Errorf("%d lost before anything was sent", n)
	}
	const sent = 200
	for range sent {
		sock.Write(c, make([]byte, 1000))
	}
	in := sock.NewInbox(sent, true)
	got := receive(t, in, fd)
	if n := int(sock.Overflowed(fd)); n == 0 || n+got != sent {
		t.Errorf("%d lost, %d received", n, got)
	}
}
