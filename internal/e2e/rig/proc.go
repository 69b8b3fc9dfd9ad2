package rig

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

// A Proc is a running `poise run` with an admin socket and HTTP address of its
// own; everything else is up to the test's configuration.
type Proc struct {
	Dir    string // poise.yaml, conf.d/admin.yaml, admin.sock
	HTTP   string // address of /metrics and /readyz
	cmd    *exec.Cmd
	stdout *Output
	Log    *Output
	Done   chan struct{} // closed when the process has gone
}

// Start runs the binary on a configuration without an admin section and waits
// until it is ready. Whatever is left of it goes when the test ends.
func Start(t testing.TB, yaml string, with ...func(*exec.Cmd)) *Proc {
	t.Helper()
	p := Launch(t, yaml, with...)
	p.awaitReady(t)
	return p
}

func (p *Proc) awaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, "the process to be ready", func() bool {
		if p.Gone() {
			t.Fatalf("poise ended before it was ready\n%s", p.Stderr())
		}
		return p.Readyz() == http.StatusOK
	})
}

// Launch is Start without the wait.
func Launch(t testing.TB, yaml string, with ...func(*exec.Cmd)) *Proc {
	t.Helper()
	dir, err := os.MkdirTemp(Scratch, "run-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &Proc{
		Dir: dir, HTTP: EveryIPv4(t), // of which a test may make every address
		stdout: &Output{}, Log: &Output{}, Done: make(chan struct{}),
	}
	p.Write(t, yaml)
	if err := os.Mkdir(filepath.Join(dir, "conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("admin: {socket: %s, http: %q, state: %s}\n", p.Socket(), p.HTTP, p.State())
	if err := os.WriteFile(filepath.Join(dir, "conf.d", "admin.yaml"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(Binary(t), "run", "-c", p.Config())
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.Log
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
		close(p.Done)
	}()
	t.Cleanup(func() { p.cleanup(t) })
	return p
}

// InFolderOf makes a process use the files of another one.
func InFolderOf(p *Proc) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.Args[len(c.Args)-1] = p.Config() }
}

func (p *Proc) cleanup(t testing.TB) {
	// The second signal ends all waiting. Two that come at once may be taken for one.
	for end := time.Now().Add(Patience); !p.Gone(); {
		if time.Now().After(end) {
			t.Error("poise does not end whatever the number of signals")
			p.Signal(syscall.SIGKILL)
			<-p.Done
		}
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.Done:
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

// Config is the path of its configuration.
func (p *Proc) Config() string { return filepath.Join(p.Dir, "poise.yaml") }

// Socket is the path of its admin socket.
func (p *Proc) Socket() string { return filepath.Join(p.Dir, "admin.sock") }

// State is the path of the file that holds what operators have said.
func (p *Proc) State() string { return filepath.Join(p.Dir, "state.json") }

// PID is its number.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Stderr returns the process's log so far.
func (p *Proc) Stderr() string { return p.Log.String() }

// Stdout returns the access log so far, unless it goes elsewhere.
func (p *Proc) Stdout() string { return p.stdout.String() }

// Signal sends a signal; a process that has gone gets none.
func (p *Proc) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Gone reports whether the process has ended.
func (p *Proc) Gone() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Wait returns the exit code; -1 means that a signal ended the process.
func (p *Proc) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.Done:
	case <-time.After(Patience):
		t.Fatal("poise does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop ends the process with one SIGTERM and expects exit code 0.
func (p *Proc) Stop(t testing.TB) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// Write replaces the configuration file; Reload makes it take effect.
func (p *Proc) Write(t testing.TB, yaml string) {
	t.Helper()
	if err := os.WriteFile(p.Config(), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Reload writes the configuration and asks for a reload over the admin socket.
// A refusal is the test's to judge: see ReloadResult.OK.
func (p *Proc) Reload(t testing.TB, yaml string) admin.ReloadResult {
	t.Helper()
	p.Write(t, yaml)
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	res, err := admin.NewClient(p.Socket()).Reload(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// MustReload is a Reload that may not be refused; it returns the changes.
func (p *Proc) MustReload(t testing.TB, yaml string) []string {
	t.Helper()
	res := p.Reload(t, yaml)
	if !res.OK {
		t.Fatalf("the reload was refused: %s", res.Error)
	}
	return res.Changes
}

// Readyz returns the status of GET /readyz, 0 without an answer.
func (p *Proc) Readyz() int {
	code, _, err := p.Get("/readyz")
	if err != nil {
		return 0
	}
	return code
}

// Get asks the read-only HTTP address on a connection of its own.
func (p *Proc) Get(path string) (code int, body []byte, err error) {
	client := http.Client{Timeout: Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + p.HTTP + path)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// Status returns GET /v1/status.
func (p *Proc) Status(t testing.TB) admin.Status {
	t.Helper()
	code, body, err := p.Get("/v1/status")
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
func (p *Proc) Backend(t testing.TB, pool, name string) admin.Backend {
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

// Series is the values of one scrape, by series as the text format writes it:
// `poise_backend_up{backend="db1",pool="pg"}`, labels sorted by name.
type Series map[string]float64

// Metrics scrapes /metrics.
func (p *Proc) Metrics(t testing.TB) Series {
	t.Helper()
	m, err := p.Scrape()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Scrape is Metrics that may fail.
func (p *Proc) Scrape() (Series, error) {
	code, body, err := p.Get("/metrics")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %d\n%s", code, body)
	}
	m := Series{}
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
func (m Series) Sum(name string, labels ...string) (sum float64) {
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

// Output collects what a process writes.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Reset forgets what has been collected.
func (o *Output) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Reset()
}

// Operate runs a command of the operator, which has to succeed.
func (p *Proc) Operate(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := CLI(t, append(args, "--socket", p.Socket())...)
	if code != 0 || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
	}
	return strings.TrimSuffix(stdout, "\n")
}
