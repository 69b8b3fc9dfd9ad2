package reload

import (
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// manager is a service manager's notify socket.
type manager struct{ *net.UnixConn }

func newManager(t *testing.T) manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return manager{conn}
}

// next returns the next message that is not the watchdog's.
func (m manager) next(t *testing.T) string {
	t.Helper()
	buf := make([]byte, 4096)
	if err := m.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := m.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(buf[:n]); s != "WATCHDOG=1" {
			return s
		}
	}
}

func (m manager) environment(more ...string) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.Env = append(c.Environ(), "NOTIFY_SOCKET="+m.LocalAddr().String())
		c.Env = append(c.Env, more...)
	}
}

func TestNotifyServiceManager(t *testing.T) {
	m := newManager(t)
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	p := rig.Start(t, "runtime: {pre_stop: 1ms, drain: 2m}\n"+rig.OneService(rig.Addr(t), "round-robin", db), m.environment())
	ready := "READY=1\nSTATUS=1 service, 1 pool"
	if s := m.next(t); s != ready {
		t.Errorf("at the start: %q", s)
	}
	p.Signal(syscall.SIGHUP)
	if s := m.next(t); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=\d+$`).MatchString(s) {
		t.Errorf("at a reload: %q", s)
	}
	if s := m.next(t); s != ready {
		t.Errorf("after a reload: %q", s)
	}
	p.Reload(t, "nonsense")
	if s := m.next(t); !strings.HasPrefix(s, "RELOADING=1\n") {
		t.Errorf("at a reload: %q", s)
	}
	if s := m.next(t); s != ready {
		t.Errorf("after a refused reload: %q", s)
	}
	p.Stop(t)
	if s := m.next(t); s != "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=125001000" {
		t.Errorf("at the end: %q", s)
	}
}

func TestFeedWatchdog(t *testing.T) {
	m := newManager(t)
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	p := rig.Start(t, rig.OneService(rig.Addr(t), "round-robin", db), m.environment("WATCHDOG_USEC=200000"))
	if err := m.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for fed := 0; fed < 3; {
		n, err := m.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if string(buf[:n]) == "WATCHDOG=1" {
			fed++
		}
	}
	p.Stop(t)
}
