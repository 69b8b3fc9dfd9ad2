package admin

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestSocketMode(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o777} {
		t.Run(fmt.Sprintf("umask %03o", umask), func(t *testing.T) {
			dir := t.TempDir()
			old := syscall.Umask(umask)
			s, err := ListenSocket(filepath.Join(dir, "s"), &fake{}, room, quiet())
			syscall.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			fi, err := os.Lstat(filepath.Join(dir, "s"))
			if err != nil || fi.Mode().Perm() != 0o660 || fi.Mode().Type() != os.ModeSocket {
				t.Error(fi.Mode(), err)
			}
		})
	}
}

func TestSocketIsRemoved(t *testing.T) {
	path, s := startSocket(t, &fake{}) // in a folder that did not exist
	if err := NewClient(path).Live(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// stale leaves a socket at path as a process that was killed does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale(t, path)
	s, err := ListenSocket(path, &fake{}, room, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := NewClient(path).Live(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLiveSocketIsRefused(t *testing.T) {
	path, _ := startSocket(t, &fake{})
	_, err := ListenSocket(path, &fake{}, room, quiet())
	if err == nil || !strings.Contains(err.Error(), "another poise is running") {
		t.Error(err)
	}
	if err := NewClient(path).Live(t.Context()); err != nil {
		t.Error("the running one does not answer any more: ", err)
	}
}

// A process that hangs still has its socket: the kernel accepts for it until
// its queue is full, and even then it is not taken for dead.
func TestHangingOwnerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := net.Dial("unix", path)
		if err != nil {
			break // full
		}
		defer c.Close()
	}
	if s, err := ListenSocket(path, &fake{}, room, quiet()); err == nil {
		s.Close()
		t.Error("took the socket of a process that lives")
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ListenSocket(path, &fake{}, room, quiet())
	if err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Error(err)
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Errorf("%q", data)
	}
}

// What somebody else has put in the socket's place is not ours to remove.
func TestReplacedSocketIsLeftAlone(t *testing.T) {
	path, s := startSocket(t, &fake{})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := ListenSocket(path, &fake{}, room, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := NewClient(path).Live(t.Context()); err != nil {
		t.Error("closing the first removed the second one's socket: ", err)
	}
}

// Of several that start at once on a stale socket, one gets it and can be
// reached.
func TestOneOfManyStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale(t, path)
	var mu sync.Mutex
	var started []*Server
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if s, err := ListenSocket(path, &fake{}, room, quiet()); err == nil {
				mu.Lock()
				defer mu.Unlock()
				started = append(started, s)
			}
		})
	}
	wg.Wait()
	for _, s := range started {
		defer s.Close()
	}
	if len(started) != 1 {
		t.Fatalf("%d started", len(started))
	}
	if err := NewClient(path).Live(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSocketPathTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if s, err := ListenSocket(path, &fake{}, room, quiet()); err == nil {
		s.Close()
		t.Error("bound")
	}
}
