package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/loadgen"
)

// The whole script, in a process of its own: every scene leaves its line, the
// victim leaves the rotation and returns, and no client notices.
func TestDemoPlaysItsScript(t *testing.T) {
	binary(t) // however long it takes to build
	out, errs, code := cli(t, "demo", "--duration", "6s")
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}
	for _, s := range demoScript("least-conn") {
		if strings.Count(out, "s  "+s.caption+" ") != 1 {
			t.Errorf("no line for %q", s.caption)
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

// Each algorithm's configuration is one the daemon takes.
func TestDemoConfigurations(t *testing.T) {
	for name := range evenly {
		s, err := setStage(name, demoCycle)
		if err != nil {
			t.Fatal(err)
		}
		f, err := config.Parse("demo.yaml", []byte(s.config))
		s.clear()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := f.Pools[0].Balance; got.Algorithm != name || len(got.Backends) != 3 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDemoFailsWithAClient(t *testing.T) {
	var out bytes.Buffer
	err := runDemo(t.Context(), &out, "round-robin", time.Second, []scene{{
		caption: "db1 resets everybody", share: 1,
		act: func(victim *loadgen.Backend) error {
			victim.Behave(loadgen.Behaviour{Reset: true})
			return nil
		},
	}})
	if err == nil || !strings.HasSuffix(err.Error(), " client connections failed") {
		t.Errorf("error %v, want failed connections\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "\nreset: ") && !strings.Contains(out.String(), "\nclosed: ") {
		t.Errorf("the summary does not say what failed:\n%s", &out)
	}
}

func TestDemoSaysWhatWentWrong(t *testing.T) {
	want := errors.New("the stage fell down")
	err := runDemo(t.Context(), io.Discard, "p2c", time.Second, []scene{{
		share: 1, act: func(*loadgen.Backend) error { return want },
	}})
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// The daemon of the demonstration does not start where something else listens,
// and says so.
func TestDemoDaemonThatCannotStart(t *testing.T) {
	s, err := setStage("p2c", demoCycle)
	if err != nil {
		t.Fatal(err)
	}
	defer s.clear()
	ln, err := net.Listen("tcp", s.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d, err := startDemoDaemon(t.Context(), s.config)
	if err == nil {
		t.Fatal("it started all the same: ", d.stop())
	}
	if !strings.Contains(err.Error(), s.listen) {
		t.Errorf("the error does not name %s: %v", s.listen, err)
	}
}

func TestDemoRefusesNonsense(t *testing.T) {
	binary(t)
	for _, args := range [][]string{{"x"}, {"--duration", "1ms"}, {"--balance", "fair"}} {
		if out, errs, code := cli(t, append([]string{"demo"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d, want %d\n%s%s", args, code, exitUsage, out, errs)
		}
	}
}

// On a terminal, an interrupt ends the demonstration in order: the cursor is
// given back and the summary is printed.
func TestDemoOnATerminal(t *testing.T) {
	master, slave := openTerminal(t)
	cmd := exec.Command(binary(t), "demo", "--balance", "p2c")
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	var out output
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&out, master) // until the last descriptor of the slave has gone
	}()
	eventually(t, "the table", func() bool { return strings.Count(out.String(), "scene 1/4") > 2 })
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
