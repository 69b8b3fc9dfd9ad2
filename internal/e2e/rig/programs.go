package rig

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Program returns the path of a program that a test drives. Without it the test is skipped.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path = filepath.Join("/usr/sbin", name); !Exists(path) {
			Unavailable(t, name+" is not installed")
		}
	}
	return path
}

// Exists reports whether there is a file.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A Server is a real server in a process of its own.
type Server struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has gone
}

// StartServer runs a real server until the test ends and waits until it answers. Last is
// the signal that ends it at once, whatever connections are open.
func StartServer(t testing.TB, cmd *exec.Cmd, last syscall.Signal, answers func() bool) *Server {
	t.Helper()
	name, out := filepath.Base(cmd.Path), &Output{}
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &Server{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(last)
		select {
		case <-s.done:
		case <-time.After(Patience):
			s.Kill()
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, out)
		}
	})
	Eventually(t, name+" to answer", func() bool {
		select {
		case <-s.done:
			t.Fatalf("%s ended:\n%s", name, out)
		default:
		}
		return answers()
	})
	return s
}

// Kill ends the server as a crash does and waits until it has gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Accepting returns a function that reports whether connections to an address are accepted.
func Accepting(addr string) func() bool {
	return func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
}

// OpenDir is a folder that servers which run as another user can write to.
func OpenDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "poise-server-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}
