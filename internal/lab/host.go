package lab

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Host is a network namespace with its loopback up.
type Host struct {
	ns *os.File
}

func newHost(t testing.TB) *Host {
	t.Helper()
	h := &Host{}
	err := elsewhere(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		var err error
		h.ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = h.ns.Close() })
	h.Run(t, "ip", "link", "set", "lo", "up")
	return h
}

// path is where programs find the namespace while the host exists.
func (h *Host) path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.Fd())
}

// elsewhere runs f, which moves the thread to another namespace, and brings the
// thread back. A thread that cannot be brought back must not run anything else.
func elsewhere(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("cannot return from a network namespace: %v", err))
		}
	}()
	return f()
}

// Do runs f on this host: the sockets it makes and the processes it starts are
// the host's for good, wherever they are used. What f leaves to other goroutines
// is not on this host. f may end the test.
func (h *Host) Do(f func()) {
	err := elsewhere(func() error {
		if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		f()
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("cannot enter a network namespace: %v", err))
	}
}

// Run runs a command on this host to its end and returns what it printed. The
// test fails if the command does.
func (h *Host) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	var out []byte
	var err error
	h.Do(func() { out, err = exec.Command(name, args...).CombinedOutput() })
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Set sets a kernel parameter of the host's network, such as
// net.ipv4.ip_local_port_range.
func (h *Host) Set(t testing.TB, name, value string) {
	t.Helper()
	path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	var err error
	h.Do(func() { err = os.WriteFile(path, []byte(value), 0) })
	if err != nil {
		t.Fatalf("%s = %s: %v", name, value, err)
	}
}

// Listen listens on this host, at "10.78.0.11:9001" for example. The caller
// closes the listener.
func (h *Host) Listen(addr string) (l net.Listener, err error) {
	h.Do(func() { l, err = net.Listen("tcp", addr) })
	return l, err
}

// Dial connects from this host to an IP address and port, or gives up after the
// timeout. Local is the source address; the zero Addr leaves it to the system.
func (h *Host) Dial(local netip.Addr, addr string, timeout time.Duration) (c net.Conn, err error) {
	d := net.Dialer{Timeout: timeout}
	if local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	h.Do(func() { c, err = d.Dial("tcp", addr) })
	return c, err
}

// Forward makes a TCP address of this host reachable for everybody on the
// machine, at the address it returns, until the test ends.
func (h *Host) Forward(t testing.TB, addr string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { h.forward(c, addr) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// forwardLimit bounds one forwarded conversation: requests and their answers.
const forwardLimit = time.Minute

// forward relays both directions, each to its end.
func (h *Host) forward(c net.Conn, addr string) {
	defer c.Close()
	to, err := h.Dial(netip.Addr{}, addr, forwardLimit)
	if err != nil {
		return
	}
	defer to.Close()
	deadline := time.Now().Add(forwardLimit)
	_, _ = c.SetDeadline(deadline), to.SetDeadline(deadline)
	var back sync.WaitGroup
	back.Go(func() { pass(c, to) })
	pass(to, c)
	back.Wait()
}

// pass copies to the end of from, and passes that on.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.(*net.TCPConn).CloseWrite()
}

// Twin returns the IPv6 address that belongs to an IPv4 address of the lab:
// fd77::3 for 10.77.0.3.
func Twin(a netip.Addr) netip.Addr {
	b := a.As4()
	return netip.MustParseAddr("fd" + strconv.Itoa(int(b[1])) + "::" + strconv.Itoa(int(b[3])))
}
