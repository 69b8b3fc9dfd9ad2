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

// Program finds one that a test drives.
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

func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// StartServer runs a real server until the test ends, and waits until it accepts
// connections.
func StartServer(t *testing.T, addr string, cmd *exec.Cmd) {
	t.Helper()
	out, done := &Output{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(Patience):
			_ = cmd.Process.Kill()
			<-done
		}
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), out)
		}
	})
	Eventually(t, cmd.Path+" to accept connections", func() bool {
		select {
		case <-done:
			t.Fatalf("%s ended:\n%s", cmd.Path, out)
		default:
		}
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// OpenDir is a folder that servers which run as somebody else can use.
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
