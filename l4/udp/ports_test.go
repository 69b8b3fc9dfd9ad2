package udp_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/udp"
)

// alone runs the rest of the test in a network namespace of its own, which has
// nothing but loopback: it reports true there.
func alone(t *testing.T) bool {
	t.Helper()
	const inside = "POISE_TEST_ALONE"
	if os.Getenv(inside) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return true
	}
	if os.Geteuid() != 0 {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root for a network namespace")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// In a network with few ports, more clients come than there are ports for: they are
// dropped and counted, the others keep theirs, and a port that is free again serves
// the next.
func TestPortsRunOut(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50031")
	back := serve(t, "a", "127.0.0.1:9000", func(b []byte) []byte { return b })
	p := start(t, specs(back), fromElsewhere)
	before := descriptors(t)
	// The clients need ports too, 20 of each of three other addresses.
	var served, refused int
	for i := range 60 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(11 + i/20)}))
		c.Write([]byte{byte(i)})
		st := p.stats()
		eventually(t, "the datagram to be served or dropped", func() bool {
			return int(st.Sessions.Load()+st.Outcomes[l4.NoLocalPort].Load()) == i+1
		})
		if int(st.Sessions.Load()) > served {
			served++
			if got := reply(t, c); got != string([]byte{byte(i)}) {
				t.Errorf("client %d got %q", i, got)
			}
		} else {
			refused++
		}
	}
	if served != 24 || refused != 60-served {
		t.Errorf("%d served, %d refused with 32 ports", served, refused)
	}
	if n := descriptors(t) - before - 60; n != served {
		t.Errorf("%d descriptors for %d sessions", n, served)
	}
	if n := p.stats().Dropped[udp.DropRefused].Load(); int(n) != refused {
		t.Errorf("%d dropped", n)
	}
	// A quarter is for others.
	for range 8 {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	p.Kill(l4.Killed)
	eventually(t, "the sessions to end", func() bool { return p.Active() == 0 })
	// Replies may have been under way: the ports rest for a moment.
	before = int(p.stats().Sessions.Load())
	for i := range 20 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 0, 7}))
		eventually(t, "a new client to be served", func() bool {
			c.Write([]byte{byte('a' + i)})
			return int(p.stats().Sessions.Load()) == before+i+1
		})
		if got := reply(t, c); got != string(rune('a'+i)) {
			t.Errorf("got %q", got)
		}
	}
}

// When others have taken the ports there are fewer than the budget says: those who
// come then are refused, and served again once there are some.
func TestOthersTakeThePorts(t *testing.T) {
	if !alone(t) {
		return
	}
	fewPorts(t, "50000 50063") // of which sessions may have 48
	back := serve(t, "a", "127.0.0.1:9000", func(b []byte) []byte { return b })
	p := start(t, specs(back), fromElsewhere)
	var others []*net.UDPConn
	for range 44 {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9)})
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, c)
	}
	st := p.stats()
	client := func(i int) *net.UDPConn { return p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)})) }
	for i := range 40 {
		c := client(i)
		c.Write([]byte("x"))
		eventually(t, "the datagram to be served or dropped", func() bool { return attempts(st) == i+1 })
		if i < 20 {
			reply(t, c)
		}
	}
	if n := st.Outcomes[l4.NoLocalPort].Load(); n != 20 || !p.RanDry(p.route.Source) {
		t.Errorf("%d refused; noted: %v", n, p.RanDry(p.route.Source))
	}
	for _, c := range others {
		c.Close()
	}
	c := client(50)
	eventually(t, "a new client to be served", func() bool {
		c.Write([]byte("x"))
		return st.Sessions.Load() == 21
	})
	reply(t, c)
}

// Descriptors run out before the reserve is touched, and half of the others.
func TestDescriptorsRunOut(t *testing.T) {
	p := start(t, specs(echo(t, "a")))
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	clients := 60
	conns := make([]*net.UDPConn, clients)
	for i := range conns {
		conns[i] = p.dial()
	}
	few := old
	few.Cur = uint64(descriptors(t) + 80)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	p.run(p.route) // which measures
	st := p.stats()
	served := 0
	for i, c := range conns {
		c.Write([]byte("x"))
		eventually(t, "the datagram to be served or refused", func() bool { return attempts(st) == i+1 })
		if n := int(st.Sessions.Load()); n > served {
			served = n
			reply(t, c) // it is no invented client
		}
	}
	if n := int(st.Outcomes[l4.NoDescriptors].Load()); n != clients-served {
		t.Errorf("%d served, %d refused", served, n)
	}
	if free := int(few.Cur) - descriptors(t); free < 16+served || served == 0 {
		t.Errorf("%d sessions, %d descriptors left", served, free)
	}
}
