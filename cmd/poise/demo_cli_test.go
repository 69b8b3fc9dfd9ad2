package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/e2e/rig"
)

// The whole script, in a process of its own: every scene leaves its line, the
// victim leaves the rotation and returns, and no client notices.
func TestDemoPlaysItsScript(t *testing.T) {
	rig.Binary(t) // however long it takes to build
	out, errs, code := rig.CLI(t, "demo", "--duration", "6s")
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}
	for _, caption := range []string{"all three answer in 40 ms", "db1 slows down to 400 ms", "db1 is killed", "db1 is back, as fast as before"} {
		if strings.Count(out, "s  "+caption+" ") != 1 {
			t.Errorf("no line for %q", caption)
		}
	}
	for _, want := range []string{", 0 failed: p50 ", "\ndb1 is killed: ", "\ndb1 served ", "\ndb2 served ", "\ndb3 served "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	if errs != "" || strings.Contains(out, "\x1b") {
		t.Errorf("standard error: %q, or escape sequences without a terminal", errs)
	}
	if t.Failed() {
		t.Logf("\n%s", out)
	}
	_, yaml, _ := strings.Cut(out, "\n")
	yaml, _, _ = strings.Cut(yaml, "\n\n")
	f, err := config.Parse("printed.yaml", []byte(yaml))
	if err != nil {
		t.Fatalf("the configuration it prints is not valid: %v", err)
	}
	if _, err := os.Stat(f.Admin.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", f.Admin.Socket, err)
	}
}

func TestDemoRefusesNonsense(t *testing.T) {
	rig.Binary(t)
	for _, args := range [][]string{{"x"}, {"--duration", "1ms"}, {"--balance", "fair"}} {
		if out, errs, code := rig.CLI(t, append([]string{"demo"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d, want %d\n%s%s", args, code, exitUsage, out, errs)
		}
	}
}

// On a terminal, an interrupt ends the demonstration in order: the cursor is
// given back and the summary is printed.
func TestDemoOnATerminal(t *testing.T) {
	master, slave := openTerminal(t)
	cmd := exec.Command(rig.Binary(t), "demo", "--balance", "p2c")
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	var out rig.Output
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&out, master) // until the last descriptor of the slave has gone
	}()
	rig.Eventually(t, "the table", func() bool { return strings.Count(out.String(), "scene 1/4") > 2 })
	if _, err := master.WriteString("\x03"); err != nil { // Ctrl-C
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	<-read
	_, after, found := strings.Cut(out.String(), "\x1b[?25h")
	if !found || strings.Contains(after, "\x1b") || !strings.Contains(after, ", 0 failed: p50 ") {
		t.Errorf("after the table: cursor given back %v, %q", found, after)
	}
}

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}
