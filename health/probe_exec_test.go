package health

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell is a check that runs a script, which gets the path of file as $1.
func shell(script, file string) Spec {
	return Spec{Type: "exec", Exec: Command{Argv: []string{"/bin/sh", "-c", script, "check", file}, Pool: "pg"}}
}

func TestExecProbe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		want         Reason
		err          string
	}{
		{name: "success", script: "exit 0"},
		{name: "success with output", script: "echo fine; echo fine >&2"},
		{name: "no input", script: "read x && exit 1 || exit 0"},
		{name: "failure", script: "exit 3", want: PROC, err: "PROC: exit status 3"},
		{name: "failure with a reason", script: "echo '  disk'; printf 'full\\033[1m\\n\\n' >&2; exit 1", want: PROC, err: "PROC: exit status 1: disk full [1m"},
		{name: "killed", script: "kill -TERM $$", want: PROC, err: "PROC: signal: terminated"},
		{name: "much output", script: "yes abc | head -c 1000000; exit 1", want: PROC, err: "exit status 1: abc abc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantOutcome(t, probeOnce(shell(tt.script, "").Prober("tcp", "10.0.0.1:5432"), longTimeout), tt.want, tt.err)
		})
	}
}

func TestExecProbeCannotStart(t *testing.T) {
	t.Parallel()
	notExecutable := filepath.Join(t.TempDir(), "check")
	if err := os.WriteFile(notExecutable, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{"/nonexistent/check": "no such file", notExecutable: "permission denied"} {
		err := probeOnce(Spec{Type: "exec", Exec: Command{Argv: []string{path}}}.Prober("tcp", "10.0.0.1:1"), longTimeout)
		wantOutcome(t, err, PROC, words)
	}
}

// The command knows what it is about, and nothing of our environment.
func TestExecProbeEnvironment(t *testing.T) {
	t.Setenv("PGPASSWORD", "secret")
	t.Setenv("PATH", "/usr/bin:/bin")
	for _, tt := range []struct {
		network, address string
		port             int
		up               bool
		want             string
	}{
		{"tcp", "10.0.0.1:5432", 0, true, "PATH=/usr/bin:/bin POISE_ADDRESS=10.0.0.1 POISE_POOL=pg POISE_PORT=5432 POISE_STATE=up"},
		{"tcp", "[2001:db8::1]:5432", 8008, false, "PATH=/usr/bin:/bin POISE_ADDRESS=2001:db8::1 POISE_POOL=pg POISE_PORT=8008 POISE_STATE=down"},
		{"unix", "/run/pg.sock", 0, true, "PATH=/usr/bin:/bin POISE_ADDRESS=/run/pg.sock POISE_POOL=pg POISE_PORT= POISE_STATE=up"},
	} {
		spec := shell(`env | grep -v '^\(PWD\|SHLVL\|_\)=' | sort | tr '\n' ' ' > "$1"; pwd >> "$1"`, filepath.Join(t.TempDir(), "out"))
		spec.Port = tt.port
		ctx, cancel := contextOf(longTimeout)
		res := timed(ctx, spec.Prober(tt.network, tt.address), tt.up)
		cancel()
		got, err := os.ReadFile(spec.Exec.Argv[4])
		if res.err != nil || err != nil || string(got) != tt.want+" /\n" {
			t.Errorf("%v %v: %s, want %s /", res.err, err, got, tt.want)
		}
	}
}

// At the deadline everything the command has started is gone with it.
func TestExecProbeTimesOut(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	for name, script := range map[string]string{
		"waits":           `trap '' TERM; echo started; sleep 1000 & echo $! > "$1"; wait`,
		"closes its side": `exec >&- 2>&-; sleep 1000 & echo $! > "$1"; wait`,
	} {
		start := time.Now()
		err := probeOnce(shell(script, file).Prober("tcp", "10.0.0.1:1"), 4*shortTimeout)
		wantOutcome(t, err, PROC, "still running at the timeout")
		if took := time.Since(start); took > longTimeout/2 {
			t.Errorf("%s: took %v", name, took)
		}
		wantGone(t, file)
	}
}

// So is what a command leaves behind that has ended in time, be it that it holds
// the output open.
func TestExecProbeLeavesNoProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	start := time.Now()
	if err := probeOnce(shell(`sleep 1000 & echo $! > "$1"; exit 0`, file).Prober("tcp", "10.0.0.1:1"), longTimeout); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > longTimeout/2 {
		t.Errorf("took %v", took)
	}
	wantGone(t, file)
}

// wantGone waits for the process whose number is in file to be gone or a zombie
// that waits for init.
func wantGone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// A process that leaves the group and keeps the output open cannot hold up the
// probe.
func TestExecProbeDoesNotWaitForDeserters(t *testing.T) {
	t.Parallel()
	program(t, "setsid")
	file := filepath.Join(t.TempDir(), "pid")
	start := time.Now()
	err := probeOnce(shell(`setsid sh -c 'echo $$ > "$1"; exec sleep 1000' x "$1" & while ! [ -s "$1" ]; do sleep 0.01; done; echo left; exit 1`, file).Prober("tcp", "10.0.0.1:1"), longTimeout)
	wantOutcome(t, err, PROC, "exit status 1: left")
	if took := time.Since(start); took > longTimeout/2 {
		t.Errorf("took %v", took)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func TestExecProbeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(20*time.Millisecond, cancel)
	defer timer.Stop()
	start := time.Now()
	_ = shell("sleep 1000", "").Prober("tcp", "10.0.0.1:1").Probe(ctx)
	if took := time.Since(start); took > longTimeout/2 {
		t.Errorf("returned after %v", took)
	}
	cancel()
}

func TestExecProbeLeavesNothingOpen(t *testing.T) {
	p := shell("echo fine", "").Prober("tcp", "10.0.0.1:1")
	before := 0
	for i := range 101 {
		if i == 1 {
			before = openDescriptors(t)
		}
		if err := probeOnce(p, longTimeout); err != nil {
			t.Fatal(err)
		}
	}
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestExecProbeWithoutDescriptors(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := old
	few.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err := probeOnce(shell("exit 0", "").Prober("tcp", "10.0.0.1:1"), longTimeout)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if f := (*Failure)(nil); !errors.Is(err, ErrLocal) || errors.As(err, &f) {
		t.Errorf("%v, want ErrLocal", err)
	}
}
