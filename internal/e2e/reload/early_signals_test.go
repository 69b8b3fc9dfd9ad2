package reload

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// ignoringHangups starts a process as nohup does.
func ignoringHangups(c *exec.Cmd) {
	c.Args = append([]string{"sh", "-c", `trap "" HUP && exec "$0" "$@"`, c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
}

// handles reports whether the process has a handler for a signal: see proc(5).
func handles(t *testing.T, p *rig.Proc, s syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var caught uint64
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%x", &caught); err != nil {
				t.Fatal(err)
			}
		}
	}
	return caught&(1<<(s-1)) != 0
}

// Case O-50: a reload signal before the daemon is ready is remembered. Where the
// process was started with the signal ignored, none ends it, however early.
func TestHangupsAtTheStart(t *testing.T) {
	t.Parallel()
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	for i := range 20 {
		p := rig.Launch(t, rig.OneService(rig.Addr(t), "round-robin", db), ignoringHangups)
		rig.Eventually(t, "the shell to have become poise", func() bool { return handles(t, p, syscall.SIGHUP) || p.Gone() })
		time.Sleep(time.Duration(i) * 2 * time.Millisecond) // at another moment of the start each
		p.Signal(syscall.SIGHUP)
		rig.Eventually(t, "the reload that was asked for", func() bool {
			if p.Gone() {
				t.Fatalf("SIGHUP at %d ms has ended it", 2*i)
			}
			return strings.Contains(p.Stderr(), "msg=reloaded")
		})
		p.Stop(t)
	}
}

// Case O-50: SIGTERM in the same place ends it in order.
func TestStopAtTheStart(t *testing.T) {
	t.Parallel()
	// The start waits a second for names; that of a server that never answers.
	p := rig.Launch(t, fmt.Sprintf(`
services:
  web: {listen: [%q], pool: web}
pools:
  web: {backends: ["db.test:5432"], resolve: {servers: ["127.0.0.1:1"]}}
`, rig.Addr(t)))
	rig.Eventually(t, "the start to wait for names", func() bool { _, err := os.Stat(p.Socket()); return err == nil })
	for range 50 { // these leave room for the end
		p.Signal(syscall.SIGHUP)
	}
	p.Stop(t)
}

// Case O-50: 300 signals and 20 commands at once are a few reloads, and no harm.
func TestHangupStorm(t *testing.T) {
	t.Parallel()
	db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
	p := rig.Start(t, rig.OneService(listen, "round-robin", db))
	var commands sync.WaitGroup
	for range 20 {
		commands.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
			defer cancel()
			if res, err := admin.NewClient(p.Socket()).Reload(ctx); err != nil || !res.OK {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	for range 300 {
		p.Signal(syscall.SIGHUP)
	}
	commands.Wait()
	if _, err := rig.Ask(listen); err != nil {
		t.Error(err)
	}
	p.Stop(t)
}
