package reload

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/e2e/rig"
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

// Case O-41: the program that reads the log stops reading. Nothing waits for it: checks,
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
			db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
			yaml := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen,
				rig.OnePool("web", "round-robin", "    check: {type: tcp, interval: 50ms, fast_interval: 50ms, down_interval: 50ms, rise: 1, fall: 1}\n", db))
			yaml, list := talkative(t, yaml)
			p := rig.Start(t, yaml, c.process(w))
			w.Close()

			overwhelm(t, p, list)
			for range 50 {
				if _, err := rig.Ask(listen); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				db.Kill()
				rig.Eventually(t, "the check to fail", func() bool { return p.Backend(t, "web", "db1").State == "down" })
				if err := db.Revive(); err != nil {
					t.Fatal(err)
				}
				rig.Eventually(t, "the check to pass", func() bool { return p.Backend(t, "web", "db1").State == "up" })
			}
			client := admin.NewClient(p.Socket())
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
			if code, _, err := p.Get("/livez"); code != http.StatusOK {
				t.Errorf("/livez: %d, %v", code, err)
			}
			if text, _, _ := rig.CLI(t, "status", "--socket", p.Socket()); !strings.Contains(text, "nothing has read the log for") {
				t.Errorf("poise status does not tell:\n%s", text)
			}

			p.Signal(syscall.SIGTERM)
			select {
			case <-p.Done:
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

// talkative adds a pool to a configuration whose backends come and go by the file list.
func talkative(t *testing.T, yaml string) (more, list string) {
	t.Helper()
	list = filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return yaml + fmt.Sprintf("  many: {check: {type: none}, backends_file: %s}\n", list), list
}

// overwhelm has a talkative process log until messages are lost: one for each backend
// that is listed, and one for each that is not any more.
func overwhelm(t *testing.T, p *rig.Proc, list string) {
	t.Helper()
	var content strings.Builder
	for i := range 1800 {
		fmt.Fprintf(&content, "127.1.%d.%d:1\n", i/250, i%250+1)
	}
	rewrite := func(content string) {
		if err := os.WriteFile(list+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(content.String())
	rig.Eventually(t, "messages to be lost", func() bool { return p.Metrics(t)["poise_log_dropped_total"] > 0 })
	rewrite("127.1.9.9:1\n")
	rig.Eventually(t, "few backends to be left", func() bool { return p.Metrics(t).Sum("poise_backend_up") < 5 })
}

// Case O-41, later: the log is read again, and then its reader goes away for good.
func TestLogIsReadAgain(t *testing.T) {
	t.Parallel()
	r, w := unread(t)
	db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
	yaml, list := talkative(t, rig.OneService(listen, "round-robin", db))
	p := rig.Start(t, yaml, func(c *exec.Cmd) { c.Stderr = w })
	w.Close()
	overwhelm(t, p, list)

	var read rig.Output
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		_, _ = io.Copy(&read, r)
	}()
	rig.Eventually(t, "the log to say what is missing", func() bool { return strings.Contains(read.String(), "messages are missing here") })
	p.MustReload(t, yaml)
	rig.Eventually(t, "the next message", func() bool { return strings.Contains(read.String(), "msg=reloaded") })
	if text, _, _ := rig.CLI(t, "status", "--socket", p.Socket()); strings.Contains(text, "nothing has read the log") {
		t.Errorf("poise status still tells:\n%s", text)
	}

	// Nothing else has the pipe: this is the end that SIGPIPE tells of.
	r.Close()
	<-reading
	for range 20 {
		p.MustReload(t, yaml)
		if _, err := rig.Ask(listen); err != nil {
			t.Fatal(err)
		}
	}
	cpu, began := p.CPU(t), time.Now()
	time.Sleep(500 * time.Millisecond)
	if used, took := p.CPU(t)-cpu, time.Since(began); used > took/2 {
		t.Errorf("%v of CPU in %v: it spins", used, took)
	}
	p.Stop(t)
}
