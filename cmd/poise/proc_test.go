package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
)

// A proc is a running `poise run` with an admin socket and HTTP address of its
// own; everything else is up to the test's configuration.
type proc struct {
	dir    string // poise.yaml, conf.d/admin.yaml, admin.sock
	http   string // address of /metrics and /readyz
	cmd    *exec.Cmd
	stdout *output
	stderr *output
	ended  chan struct{} // closed when the process has gone
}

// start runs the binary on a configuration without an admin section and waits
// until it is ready. Whatever is left of it goes when the test ends.
func start(t testing.TB, yaml string, with ...func(*exec.Cmd)) *proc {
	t.Helper()
	p := launch(t, yaml, with...)
	eventually(t, "the process to be ready", func() bool {
		if p.gone() {
			t.Fatalf("poise ended before it was ready\n%s", p.Stderr())
		}
		return p.readyz() == http.StatusOK
	})
	return p
}

// launch is start without the wait.
func launch(t testing.TB, yaml string, with ...func(*exec.Cmd)) *proc {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "run-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &proc{
		dir: dir, http: addr(t),
		stdout: &output{}, stderr: &output{}, ended: make(chan struct{}),
	}
	p.Write(t, yaml)
	if err := os.Mkdir(filepath.Join(dir, "conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("admin: {socket: %s, http: %q, state: %s}\n", p.socket(), p.http, p.state())
	if err := os.WriteFile(filepath.Join(dir, "conf.d", "admin.yaml"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(binary(t), "run", "-c", p.config())
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	// Should the test binary be killed, its children go with it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, w := range with {
		w(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() { p.cleanup(t) })
	return p
}

// inFolderOf makes a process use the files of another one.
func inFolderOf(p *proc) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.Args[len(c.Args)-1] = p.config() }
}

func (p *proc) cleanup(t testing.TB) {
	// The second signal ends all waiting. Two that come at once may be taken for one.
	for end := time.Now().Add(patience); !p.gone(); {
		if time.Now().After(end) {
			t.Error("poise does not end whatever the number of signals")
			p.Signal(syscall.SIGKILL)
			<-p.ended
		}
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, word := range []string{"panic:", "fatal error:", "goroutine "} {
		if strings.Contains(p.Stderr(), word) {
			t.Errorf("poise crashed")
			break
		}
	}
	if t.Failed() {
		t.Logf("standard error of poise:\n%s", p.Stderr())
	}
}

func (p *proc) config() string { return filepath.Join(p.dir, "poise.yaml") }
func (p *proc) socket() string { return filepath.Join(p.dir, "admin.sock") }
func (p *proc) state() string  { return filepath.Join(p.dir, "state.json") }
func (p *proc) pid() int       { return p.cmd.Process.Pid }

// Stderr returns the process's log so far.
func (p *proc) Stderr() string { return p.stderr.String() }

// Stdout returns the access log so far, unless it goes elsewhere.
func (p *proc) Stdout() string { return p.stdout.String() }

// Signal sends a signal; a process that has gone gets none.
func (p *proc) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *proc) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Wait returns the exit code; -1 means that a signal ended the process.
func (p *proc) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("poise does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop ends the process with one SIGTERM and expects exit code 0.
func (p *proc) Stop(t testing.TB) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// Write replaces the configuration file; Reload makes it take effect.
func (p *proc) Write(t testing.TB, yaml string) {
	t.Helper()
	if err := os.WriteFile(p.config(), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Reload writes the configuration and asks for a reload over the admin socket.
// A refusal is the test's to judge: see ReloadResult.OK.
func (p *proc) Reload(t testing.TB, yaml string) admin.ReloadResult {
	t.Helper()
	p.Write(t, yaml)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := admin.NewClient(p.socket()).Reload(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// MustReload is a Reload that may not be refused; it returns the changes.
func (p *proc) MustReload(t testing.TB, yaml string) []string {
	t.Helper()
	res := p.Reload(t, yaml)
	if !res.OK {
		t.Fatalf("the reload was refused: %s", res.Error)
	}
	return res.Changes
}

// readyz returns the status of GET /readyz, 0 without an answer.
func (p *proc) readyz() int {
	code, _, err := p.get("/readyz")
	if err != nil {
		return 0
	}
	return code
}

// get asks the read-only HTTP address on a connection of its own.
func (p *proc) get(path string) (code int, body []byte, err error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + p.http + path)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// Status returns GET /v1/status.
func (p *proc) Status(t testing.TB) admin.Status {
	t.Helper()
	code, body, err := p.get("/v1/status")
	var s admin.Status
	if err == nil && code == http.StatusOK {
		err = json.Unmarshal(body, &s)
	}
	if err != nil || code != http.StatusOK {
		t.Fatalf("status: code %d, %v\n%s", code, err, body)
	}
	return s
}

// Backend returns one backend of Status.
func (p *proc) Backend(t testing.TB, pool, name string) admin.Backend {
	t.Helper()
	for _, pl := range p.Status(t).Pools {
		for _, b := range pl.Backends {
			if pl.Name == pool && b.Name == name {
				return b
			}
		}
	}
	t.Fatalf("there is no backend %s/%s", pool, name)
	return admin.Backend{}
}

// scraped is the values of one scrape, by series as the text format writes it:
// `poise_backend_up{backend="db1",pool="pg"}`, labels sorted by name.
type scraped map[string]float64

// Metrics scrapes /metrics.
func (p *proc) Metrics(t testing.TB) scraped {
	t.Helper()
	m, err := p.scrape()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (p *proc) scrape() (scraped, error) {
	code, body, err := p.get("/metrics")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %d\n%s", code, body)
	}
	m := scraped{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("/metrics: %q: %w", line, err)
		}
		m[line[:i]] = v
	}
	return m, nil
}

// Sum adds up the series of a name whose labels contain all of the given
// `key="value"`s.
func (m scraped) Sum(name string, labels ...string) (sum float64) {
	for series, v := range m {
		if base, _, _ := strings.Cut(series, "{"); base != name {
			continue
		}
		all := true
		for _, l := range labels {
			all = all && strings.Contains(series, l)
		}
		if all {
			sum += v
		}
	}
	return sum
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Reset()
}
