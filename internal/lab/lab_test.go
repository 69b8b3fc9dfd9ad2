package lab_test

import (
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// greet serves one connection on a host with a greeting.
func greet(t *testing.T, h *lab.Host, addr netip.Addr) string {
	t.Helper()
	l, err := h.Listen(netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func TestLabReaches(t *testing.T) {
	l := lab.New(t)
	for _, c := range []struct {
		name     string
		from, to *lab.Host
		local    netip.Addr
		addr     netip.Addr
		reached  bool
	}{
		{"client to balancer", l.Client, l.Balancer, netip.Addr{}, lab.FrontAddr, true},
		{"second client to balancer", l.Client, l.Balancer, lab.ProxyAddr, lab.FrontAddr, true},
		{"client to balancer over IPv6", l.Client, l.Balancer, netip.Addr{}, lab.Twin(lab.FrontAddr), true},
		{"balancer to backend 1", l.Balancer, l.Backend1, netip.Addr{}, lab.Backend1Addr, true},
		{"balancer to backend 2", l.Balancer, l.Backend2, lab.BackAddr, lab.Backend2Addr, true},
		{"balancer to backend 2 over IPv6", l.Balancer, l.Backend2, netip.Addr{}, lab.Twin(lab.Backend2Addr), true},
		{"balancer to itself", l.Balancer, l.Balancer, netip.Addr{}, netip.MustParseAddr("127.0.0.1"), true},
		{"client to backend", l.Client, l.Backend1, netip.Addr{}, lab.Backend1Addr, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := greet(t, c.to, c.addr)
			conn, err := c.from.Dial(c.local, addr, patience)
			if err != nil || !c.reached {
				if c.reached || err == nil {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			defer conn.Close()
			if got, err := io.ReadAll(conn); string(got) != "hello" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			from := netip.MustParseAddrPort(conn.LocalAddr().String()).Addr()
			if c.local.IsValid() && from != c.local {
				t.Errorf("from %v", from)
			}
		})
	}
}

func TestLabForward(t *testing.T) {
	l := lab.New(t)
	addr := l.Backend1.Forward(t, greet(t, l.Backend1, netip.MustParseAddr("127.0.0.1")))
	conn, err := l.Client.Dial(netip.Addr{}, addr, patience)
	if err == nil {
		conn.Close()
		t.Fatal("a forwarded address is the machine's, not a host's")
	}
	out, err := exec.Command("bash", "-c", "cat </dev/tcp/"+netip.MustParseAddrPort(addr).Addr().String()+"/"+portOf(addr)).CombinedOutput()
	if string(out) != "hello" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func portOf(addr string) string {
	return addr[len(netip.MustParseAddrPort(addr).Addr().String())+1:]
}

// Every host has parameters of its own, and the test's thread is where it was.
func TestLabKeepsToItself(t *testing.T) {
	const name = "/proc/sys/net/ipv4/ip_local_port_range"
	read := func() string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	own := func() string {
		ns, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	home, before := own(), read()
	l := lab.New(t)
	l.Balancer.Set(t, "net.ipv4.ip_local_port_range", "40000 40049")
	if read() != before {
		t.Error("the machine's own parameter has changed")
	}
	l.Balancer.Do(func() {
		if got := read(); got != "40000\t40049\n" {
			t.Errorf("on the host it is %q", got)
		}
		if own() == home {
			t.Error("no other namespace")
		}
	})
	if got := l.Client.Run(t, "cat", name); got == "40000\t40049\n" {
		t.Error("another host's parameter has changed")
	}
	// Whatever ends a Do, the thread returns.
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		l.Client.Do(func() { panic("on purpose") })
	}()
	<-done
	if own() != home {
		t.Error("the thread was left in a namespace")
	}
}
