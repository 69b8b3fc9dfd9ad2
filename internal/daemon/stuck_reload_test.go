package daemon

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
)

// atOnce is how soon everything is done that does not wait for a reload, and what a
// busy machine needs; a stop that waited for one would take twice as long.
const atOnce = 3500 * time.Millisecond

// A reload that a disk or a name keeps from taking effect holds up nothing: commands,
// verdicts, status, what is discovered, the check of life and the end go on. It takes
// no effect after the end.
func TestStuckReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "poise.yaml")
	const config = "admin: {socket: %s, http: \"\", state: \"\"}\nservices:\n  web: {listen: [%q], pool: web}\n" +
		"pools:\n  web: {check: {type: none}, backends: [{name: a, address: \"127.0.0.1:1\"}]}\n"
	write := func(listen string) {
		if err := os.WriteFile(path, fmt.Appendf(nil, config, filepath.Join(filepath.Dir(path), "s"), listen), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(reserve(t))
	stops := make(chan os.Signal, 1)
	d, err := start(Options{Path: path, Stdout: io.Discard, Stderr: io.Discard, Stops: stops})
	if err != nil {
		t.Fatal(err)
	}
	later := reserve(t)
	write(later)
	d.applying.Lock() // as if it was that reload's
	answer := make(chan admin.ReloadResult, 1)
	go func() { answer <- d.Reload(t.Context()) }()

	quick := func(what string, f func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(atOnce):
			t.Errorf("%s waits for the reload", what)
		}
	}
	for _, state := range []string{admin.OperatorDrain, admin.OperatorReady, admin.OperatorMaint, admin.OperatorReady} {
		quick(state, func() error {
			_, err := d.SetState("web", "a", admin.StateRequest{State: state})
			return err
		})
	}
	quick("connections", func() error { _, err := d.Conns(admin.ConnQuery{Limit: 1}); return err })
	quick("status", func() error { d.Status(); return nil })
	quick("the check of life", d.Live)
	stops <- os.Interrupt
	quick("the end", func() error { d.serve(t.Context()); return nil })
	select {
	case r := <-answer:
		if r.OK || !strings.Contains(r.Error, "stopping") {
			t.Errorf("%+v", r)
		}
	case <-time.After(20 * time.Second):
		t.Error("the reload is not answered")
	}

	d.applying.Unlock()
	d.reloading.Wait()
	if c, err := net.Dial("tcp", later); err == nil {
		c.Close()
		t.Error("the reload has taken effect after the end")
	}
	d.logging.close()
}

// A service manager that does not read keeps nothing waiting.
func TestNotifyStuck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	filled := make(chan error, 1)
	go func() {
		for range 10_000 {
			if err := (notifier{}).write("STATUS=full"); err != nil {
				filled <- err
				return
			}
		}
		filled <- nil
	}()
	select {
	case err := <-filled:
		if !os.IsTimeout(err) {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for ever")
	}
}
