package udp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// pair returns a socket towards a listener.
func pair(t *testing.T) (fd int, far *net.UDPConn) {
	t.Helper()
	far, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	far.SetDeadline(time.Now().Add(20 * time.Second))
	fd, errno := sock.ConnectUDP(netip.MustParseAddrPort(far.LocalAddr().String()), netip.Addr{}, false)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { sock.Close(fd); far.Close() })
	return fd, far
}

// Where the way cannot cut up trains, or not of that size, datagrams go singly, and
// after the first time they are not even tried.
func TestMailerWithoutTrains(t *testing.T) {
	fd, far := pair(t)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err) // without checksums there are no trains
	}
	m := newMailer(4)
	owner := &traffic{service: &Service{}}
	var to sock.Destination
	var want [][]byte
	for round := range 3 {
		for i := range 10 {
			b := bytes.Repeat([]byte{byte('a' + i)}, 100)
			owner.add(1, len(b))
			m.post(fd, owner, &to, nil, b, 0)
			want = append(want, b)
		}
		train := []byte(fmt.Sprintf("a train %d", round)) // 9 bytes
		owner.add(datagrams(len(train), 2), len(train))
		m.post(fd, owner, &to, nil, train, 2)
		for len(train) > 0 {
			n := min(2, len(train))
			want = append(want, train[:n])
			train = train[n:]
		}
		m.send(fd)
		if !owner.singly {
			t.Error("it still goes by train")
		}
	}
	buf := make([]byte, 200)
	for i, w := range want {
		n, err := far.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], w) {
			t.Fatalf("datagram %d: %q, want %q; %v", i, buf[:n], w, err)
		}
	}
	if n, size := owner.news(); n != uint64(len(want)) || size != 3*(10*100+9) {
		t.Errorf("%d datagrams, %d bytes", n, size)
	}
}

// What the kernel does not take is lost, counted, and nothing else with it.
func TestMailerFailures(t *testing.T) {
	fd, far := pair(t)
	m := newMailer(8)
	svc := &Service{}
	a, b := &traffic{service: svc}, &traffic{service: svc}
	var to sock.Destination
	post := func(owner *traffic, payload []byte) {
		owner.add(1, len(payload))
		m.post(fd, owner, &to, nil, payload, 0)
	}
	post(a, []byte("one"))
	post(b, make([]byte, sock.MaxDatagram+1))
	post(a, []byte("two"))
	post(b, []byte("three"))
	if m.send(fd) {
		t.Error("somebody refuses")
	}
	buf := make([]byte, 10)
	for _, want := range []string{"one", "two", "three"} {
		if n, err := far.Read(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("%q, want %q; %v", buf[:n], want, err)
		}
	}
	if n := svc.Stats.Dropped[DropTooLarge].Load(); n != 1 || a.datagrams != 2 || b.datagrams != 1 || b.bytes != 5 {
		t.Errorf("%d dropped; %d and %d went", n, a.datagrams, b.datagrams)
	}

	// An error of the past is retried, and reported.
	far.Close()
	sock.Write(fd, []byte("x"))
	post(a, []byte("one"))
	if !m.send(fd) {
		t.Error("nobody refuses")
	}
	if a.datagrams != 3 {
		t.Errorf("%d datagrams", a.datagrams)
	}
}

// A socket that is full loses what it is given, not what others are. A UDP socket on
// loopback never is; one of the same kind that nobody reads from is soon.
func TestMailerBufferFull(t *testing.T) {
	both, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close(both[0])
	defer sock.Close(both[1])
	fd := both[0]
	m := newMailer(8)
	owner := &traffic{service: &Service{}}
	var to sock.Destination
	const n = 200
	for i := range n {
		b := make([]byte, 900+i) // each of its own size
		owner.add(1, len(b))
		m.post(fd, owner, &to, nil, b, 0)
	}
	m.send(fd)
	dropped := owner.service.Stats.Dropped[DropBufferFull].Load()
	if dropped == 0 || dropped+owner.datagrams != n {
		t.Errorf("%d dropped, %d sent of %d", dropped, owner.datagrams, n)
	}
}

// The same of a train that has to go one by one, as this kind of socket has it with one
// that is larger than its buffer.
func TestMailerBufferFullOfATrain(t *testing.T) {
	both, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close(both[0])
	defer sock.Close(both[1])
	if err := syscall.SetsockoptInt(both[0], syscall.SOL_SOCKET, syscall.SO_SNDBUF, 8192); err != nil {
		t.Fatal(err)
	}
	m := newMailer(8)
	owner := &traffic{service: &Service{}}
	var to sock.Destination
	const n = 60
	owner.add(n, n*1000)
	m.post(both[0], owner, &to, nil, make([]byte, n*1000), 1000)
	m.send(both[0])
	full := owner.service.Stats.Dropped[DropBufferFull].Load()
	if !owner.singly || full == 0 || owner.datagrams == 0 || full+owner.datagrams != n || owner.bytes != owner.datagrams*1000 {
		t.Errorf("%d dropped, %d sent of %d, %d bytes", full, owner.datagrams, n, owner.bytes)
	}
}

func TestChains(t *testing.T) {
	tr := newTray(5, false)
	var a, b chain
	if a.head() != -1 {
		t.Error("an empty chain has a head")
	}
	for i, c := range []*chain{&a, &b, &b, &a, &b} {
		if first := tr.push(c, i); first != (i < 2) {
			t.Errorf("slot %d: first is %v", i, first)
		}
	}
	var got []int
	for i := a.head(); i >= 0; i = tr.after(i) {
		got = append(got, i)
	}
	for i := b.head(); i >= 0; i = tr.after(i) {
		got = append(got, i)
	}
	if fmt.Sprint(got) != "[0 3 1 2 4]" || a.single() {
		t.Errorf("got %v", got)
	}
}

func TestCountDatagrams(t *testing.T) {
	for _, c := range [][3]int{{0, 0, 1}, {100, 0, 1}, {100, 100, 1}, {99, 100, 1}, {101, 100, 2}, {300, 100, 3}} {
		if got := datagrams(c[0], c[1]); int(got) != c[2] {
			t.Errorf("%d bytes of %d: %d", c[0], c[1], got)
		}
	}
}

// A datagram by itself goes the short way, with the same care.
func TestSendOne(t *testing.T) {
	fd, far := pair(t)
	s := &session{connection: connection{fd: int32(fd)}, in: traffic{service: &Service{}}}
	dropped := &s.in.service.Stats.Dropped
	s.in.add(1, sock.MaxDatagram+1)
	if s.sendOne(make([]byte, sock.MaxDatagram+1)) || dropped[DropTooLarge].Load() != 1 || s.in.datagrams != 0 {
		t.Errorf("%d dropped as too large", dropped[DropTooLarge].Load())
	}
	far.Close()
	sock.Write(fd, []byte("x"))
	if !s.sendOne([]byte("y")) || dropped[DropSendFailed].Load() != 0 {
		t.Error("the error of an earlier datagram has cost this one")
	}
}
