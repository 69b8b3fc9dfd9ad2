package reload

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-33: not ready, still accepting, no longer accepting, draining, gone.
func TestStopInOrder(t *testing.T) {
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	const preStop, drain = time.Second, 2 * time.Second
	p := rig.Start(t, fmt.Sprintf("runtime: {pre_stop: %s, drain: %s}\n%s", preStop, drain, rig.OneService(listen, "round-robin", db)))
	long := rig.Dial(t, listen)
	long.MustAsk(t)

	p.Signal(syscall.SIGTERM)
	began := time.Now()
	rig.Eventually(t, "/readyz to fail", func() bool { return p.Readyz() == http.StatusServiceUnavailable })
	// Connections go on to be accepted, and then they do not.
	accepted := 0
	for ; ; accepted++ {
		if _, err := rig.Ask(listen); err != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if after := time.Since(began); after < preStop || accepted == 0 {
		t.Errorf("refused after %v; before, with /readyz failing, %d were accepted", after, accepted)
	}
	long.MustAsk(t)
	if p.Readyz() != http.StatusServiceUnavailable {
		t.Error("/readyz does not say so while draining")
	}
	if s := p.Status(t); s.State != "stopping" || s.Connections != 1 || s.Services[0].State != "draining" {
		t.Errorf("while draining: %+v", s)
	}
	if _, stderr, code := rig.CLI(t, "reload", "--socket", p.Socket()); code != 1 || !strings.Contains(stderr, "stopping") {
		t.Errorf("reload while draining: exit code %d, %q", code, stderr)
	}

	if _, err := long.Reader.ReadByte(); err == nil {
		t.Error("a byte out of nowhere")
	}
	if after := time.Since(began); after < preStop+drain {
		t.Errorf("the open connection was closed after %v", after)
	}
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(p.Stdout(), "/drained ") {
		t.Errorf("the access log does not say why:\n%s", p.Stdout())
	}
	if _, err := os.Stat(p.Socket()); !os.IsNotExist(err) {
		t.Errorf("the admin socket is left: %v", err)
	}
}

// Case O-33: a second signal ends it, whatever it is waiting for.
func TestStopNow(t *testing.T) {
	for name, runtime := range map[string]string{
		"before": "runtime: {pre_stop: 10m, drain: 10m}\n",
		"drain":  "runtime: {drain: 10m}\n",
	} {
		t.Run(name, func(t *testing.T) {
			db := rig.Backend(t, "db1", loadgen.Behaviour{})
			listen := rig.Addr(t)
			p := rig.Start(t, runtime+rig.OneService(listen, "round-robin", db))
			long := rig.Dial(t, listen)
			long.MustAsk(t)
			p.Signal(syscall.SIGTERM)
			if name == "drain" {
				rig.Eventually(t, "connections to be refused", func() bool { _, err := rig.Ask(listen); return err != nil })
			} else {
				rig.Eventually(t, "/readyz to fail", func() bool { return p.Readyz() == http.StatusServiceUnavailable })
			}
			p.Signal(syscall.SIGHUP) // is none
			long.MustAsk(t)
			p.Signal(os.Interrupt.(syscall.Signal))
			began := time.Now()
			if code := p.Wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			// It is promised within a second; the rest is for a busy machine.
			if after := time.Since(began); after > 5*time.Second {
				t.Errorf("it took %v", after)
			}
			if _, err := long.Reader.ReadByte(); err == nil {
				t.Error("a byte out of nowhere")
			}
			if !strings.Contains(p.Stdout(), "/killed ") {
				t.Errorf("the access log does not say why:\n%s", p.Stdout())
			}
		})
	}
}

// The stop does not wait for the drain time if there is nothing to drain.
func TestStopWhenIdle(t *testing.T) {
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, "runtime: {drain: 10m}\n"+rig.OneService(listen, "round-robin", db))
	c := rig.Dial(t, listen)
	c.MustAsk(t)
	p.Signal(syscall.SIGTERM)
	rig.Eventually(t, "connections to be refused", func() bool { _, err := rig.Ask(listen); return err != nil })
	c.MustAsk(t)
	c.Close()
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A start that fails says why and leaves nothing.
func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", rig.Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	db := rig.Backend(t, "db1", loadgen.Behaviour{})

	p := rig.Launch(t, rig.OneService(taken.Addr().String(), "round-robin", db))
	if code := p.Wait(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"service web", taken.Addr().String(), "address already in use"} {
		if strings.Count(p.Stderr(), want) != 1 {
			t.Errorf("%q is not said once", want)
		}
	}
	if _, err := os.Stat(p.Socket()); !os.IsNotExist(err) {
		t.Errorf("the admin socket is left: %v", err)
	}
	if n := db.Stats().Accepted; n != 0 {
		t.Errorf("the backend was bothered %d times", n)
	}

	// A second daemon on the files of the first does not disturb it.
	listen := rig.Addr(t)
	first := rig.Start(t, rig.OneService(listen, "round-robin", db))
	_, stderr, code := rig.CLI(t, "run", "-c", first.Config())
	if code != 1 || !strings.Contains(stderr, first.Socket()) {
		t.Errorf("a second one: exit code %d, %q", code, stderr)
	}
	if _, err := rig.Ask(listen); err != nil || first.Status(t).PID != first.PID() {
		t.Errorf("the first one suffers: %v", err)
	}
}

// A process that was killed is no obstacle to the next one.
func TestStartAfterKill(t *testing.T) {
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	yaml := rig.OneService(listen, "round-robin", db)
	p := rig.Start(t, yaml)
	p.Signal(syscall.SIGKILL)
	p.Wait(t)
	if _, err := os.Stat(p.Socket()); err != nil {
		t.Fatal("there is no stale socket to test with")
	}
	next := rig.Launch(t, yaml, rig.InFolderOf(p))
	rig.Eventually(t, "the next one to be ready", func() bool { return p.Readyz() == http.StatusOK })
	if _, err := rig.Ask(listen); err != nil {
		t.Error(err)
	}
	next.Stop(t)
}

// The log does not hold up the end: a pipe that is not read is given up on.
func TestStopWithStuckAccessLog(t *testing.T) {
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // keeps it open and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	p := rig.Start(t, fmt.Sprintf("log: {access: %s}\n%s", pipe, rig.OneService(listen, "round-robin", db)))
	for range 1000 { // some 100 bytes each into 64 KiB
		if _, err := rig.Ask(listen); err != nil {
			t.Fatal(err)
		}
	}
	p.Stop(t)
	if n, _ := io.Copy(io.Discard, io.LimitReader(reader, 1)); n != 1 {
		t.Error("nothing was logged")
	}
}
