package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/loadgen"
)

// unread is a pipe that holds little and is read when the test wants to.
func unread(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	return r, w
}

// prompt is how soon everything is answered however stuck the log is; case O-41 says
// a second, and a busy machine gets some more.
const prompt = 5 * time.Second

func promptly(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), prompt)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Case O-41: whoever reads the log stops reading. Nothing waits for it: checks,
// commands, reloads, scrapes and the stop go on. What is lost is counted, and the
// log itself says so once it is read again.
func TestNobodyReadsTheLog(t *testing.T) {
	for _, c := range []struct {
		name    string
		process func(w *os.File) func(*exec.Cmd)
	}{
		{"messages", func(w *os.File) func(*exec.Cmd) { return func(c *exec.Cmd) { c.Stderr = w } }},
		{"messages and the access log", func(w *os.File) func(*exec.Cmd) {
			return func(c *exec.Cmd) { c.Stdout, c.Stderr = w, w }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, w := unread(t)
			db, listen := backend(t, "db1", loadgen.Behaviour{}), addr(t)
			yaml := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen,
				onePool("web", "round-robin", "    check: {type: tcp, interval: 50ms, fast_interval: 50ms, down_interval: 50ms, rise: 1, fall: 1}\n", db))
			p := start(t, yaml, c.process(w))
			w.Close()

			overwhelm(t, p)
			for range 200 {
				if _, err := ask(listen); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				db.Kill()
				eventually(t, "the check to fail", func() bool { return p.Backend(t, "web", "db1").State == "down" })
				if err := db.Revive(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the check to pass", func() bool { return p.Backend(t, "web", "db1").State == "up" })
			}
			client := admin.NewClient(p.socket())
			for _, state := range []string{admin.OperatorDrain, admin.OperatorReady} {
				promptly(t, state, func(ctx context.Context) error {
					_, err := client.SetState(ctx, "web", "db1", admin.StateRequest{State: state})
					return err
				})
			}
			p.Write(t, yaml)
			promptly(t, "reload", func(ctx context.Context) error {
				res, err := client.Reload(ctx)
				if err == nil && !res.OK {
					err = fmt.Errorf("refused: %s", res.Error)
				}
				return err
			})
			if n := p.Metrics(t)["poise_log_dropped_total"]; n == 0 {
				t.Error("no message is counted as lost")
			}
			if code, _, err := p.get("/livez"); code != http.StatusOK {
				t.Errorf("/livez: %d, %v", code, err)
			}
			if text, _, _ := cli(t, "status", "--socket", p.socket()); !strings.Contains(text, "nothing has read the log for") {
				t.Errorf("poise status does not tell:\n%s", text)
			}

			p.Signal(syscall.SIGTERM)
			select {
			case <-p.ended:
			case <-time.After(prompt):
				t.Fatal("SIGTERM does not end it")
			}
			if code := p.Wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			r.Close()
		})
	}
}

// overwhelm makes messages until some are lost: refused reloads, whose errors are long.
func overwhelm(t *testing.T, p *proc) {
	t.Helper()
	var bad strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&bad, "%s_%d: 1\n", strings.Repeat("x", 100), i)
	}
	eventually(t, "messages to be lost", func() bool {
		promptly(t, "reload", func(context.Context) error {
			if p.Reload(t, bad.String()).OK {
				return fmt.Errorf("it was not refused")
			}
			return nil
		})
		return p.Metrics(t)["poise_log_dropped_total"] > 0
	})
}

// Case O-41, later: the log is read again, and then its reader goes away for good.
func TestLogIsReadAgain(t *testing.T) {
	t.Parallel()
	r, w := unread(t)
	db, listen := backend(t, "db1", loadgen.Behaviour{}), addr(t)
	yaml := oneService(listen, "round-robin", db)
	p := start(t, yaml, func(c *exec.Cmd) { c.Stderr = w })
	w.Close()
	overwhelm(t, p)

	var read output
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		_, _ = io.Copy(&read, r)
	}()
	eventually(t, "the log to say what is missing", func() bool { return strings.Contains(read.String(), "messages are missing here") })
	p.MustReload(t, yaml)
	eventually(t, "the next message", func() bool { return strings.Contains(read.String(), "msg=reloaded") })
	if text, _, _ := cli(t, "status", "--socket", p.socket()); strings.Contains(text, "nothing has read the log") {
		t.Errorf("poise status still tells:\n%s", text)
	}

	// Nothing else has the pipe: this is the end that SIGPIPE tells of.
	r.Close()
	<-reading
	began, cpu := time.Now(), p.cpu(t)
	for range 20 {
		p.MustReload(t, yaml)
		if _, err := ask(listen); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	if used, took := p.cpu(t)-cpu, time.Since(began); used > took/2+100*time.Millisecond {
		t.Errorf("%v of CPU in %v", used, took)
	}
	p.Stop(t)
}
