package udp_test

import (
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
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("50000 50031"), 0o644); err != nil {
		t.Fatal(err)
	}
	back := serve(t, "a", "127.0.0.1:9000", func(b []byte) []byte { return b })
	p := start(t, specs(back), func(r *udp.Route) {
		// Ports of clients are of another address, and do not count.
		r.Source = netip.MustParseAddr("127.0.0.9")
		r.Spec.Listen[0].Addr = netip.MustParseAddrPort("127.0.0.1:9001")
	})
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
	if served < 30 || served > 32 || refused != 60-served {
		t.Errorf("%d served, %d refused with 32 ports", served, refused)
	}
	if n := descriptors(t) - before - 60; n != served {
		t.Errorf("%d descriptors for %d sessions", n, served)
	}
	if n := p.stats().Dropped[udp.DropRefused].Load(); int(n) != refused {
		t.Errorf("%d dropped", n)
	}
	p.Kill(l4.Killed)
	eventually(t, "the sessions to end", func() bool { return p.Active() == 0 })
	for i := range 20 {
		c := p.dialFrom(netip.AddrFrom4([4]byte{127, 0, 0, 7}))
		if got := ask(t, c, string(rune('a'+i))); got != string(rune('a'+i)) {
			t.Errorf("got %q", got)
		}
	}
}

// Descriptors run out before the reserve is touched.
func TestDescriptorsRunOut(t *testing.T) {
	p := start(t, specs(echo(t, "a")))
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	clients := 60
	conns := make([]func() string, clients)
	for i := range conns {
		c := p.dial()
		conns[i] = func() string { c.Write([]byte("x")); return "" }
	}
	few := old
	few.Cur = uint64(descriptors(t) + 50)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	p.run(p.route) // which measures
	for _, send := range conns {
		send()
	}
	st := p.stats()
	eventually(t, "all to be served or refused", func() bool {
		return int(st.Sessions.Load()+st.Outcomes[l4.NoDescriptors].Load()) == clients
	})
	if free := int(few.Cur) - descriptors(t); free < 16 || st.Outcomes[l4.NoDescriptors].Load() == 0 {
		t.Errorf("%d sessions, %d descriptors left", st.Sessions.Load(), free)
	}
}
