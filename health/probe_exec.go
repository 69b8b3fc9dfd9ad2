package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is what an exec check runs.
type Command struct {
	Argv []string // an absolute path, then arguments; no shell looks at them
	Pool string   // POISE_POOL
}

const (
	// maxOutput is how much of what a command prints is kept.
	maxOutput = 4 << 10
	// drainTime is how long output is waited for when the command and its process
	// group are gone: only who left the group can still have the other end.
	drainTime = 100 * time.Millisecond
)

// execProber runs a command of the operator's. It is healthy if that exits with
// status 0 in time.
type execProber struct {
	command Command
	env     []string
}

var execCheck = Check{Word: "exec", New: newExecProber, Fails: []Reason{PROC}}

func newExecProber(s Spec, network, address string) Prober {
	host, port := address, ""
	if network != "unix" {
		host, port, _ = net.SplitHostPort(address)
	}
	path, ok := os.LookupEnv("PATH")
	if !ok {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	// And no more of our environment: the passwords of the configuration are in it.
	return &execProber{s.Exec, []string{
		"PATH=" + path, "POISE_ADDRESS=" + host, "POISE_PORT=" + port, "POISE_POOL=" + s.Exec.Pool,
	}}
}

// Probe runs the command in a process group of its own, and kills what is left of
// the group when the command has ended or ctx has.
func (p *execProber) Probe(ctx context.Context) error {
	state := "down"
	if notesOf(ctx).up {
		state = "up"
	}
	out := &capped{most: maxOutput}
	cmd := exec.Command(p.command.Argv[0], p.command.Argv[1:]...)
	cmd.Env = append([]string{"POISE_STATE=" + state}, p.env...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = drainTime
	if err := leaders.start(cmd); err != nil {
		return startFailure(err)
	}
	defer leaders.reap(cmd)
	late := awaitGroup(ctx, cmd.Process.Pid)
	answered(ctx)
	err := cmd.Wait() // reaps: from here on the number may be another process's
	switch {
	case late:
		return failf(PROC, "killed, it was still running at the timeout%s", out.said())
	case cmd.ProcessState.Success():
		return nil
	case cmd.ProcessState.ExitCode() < 0:
		return failf(PROC, "%s%s", cmd.ProcessState, out.said()) // "signal: killed"
	case cmd.ProcessState.ExitCode() > 0:
		return failf(PROC, "exit status %d%s", cmd.ProcessState.ExitCode(), out.said())
	}
	return &Failure{PROC, err}
}

// startUnblocked starts a command with no signal blocked, whatever is blocked for this
// process: a program that cannot hear SIGTERM or SIGALRM would outlive its own limits.
func startUnblocked(cmd *exec.Cmd) error {
	// os/exec gives a child the mask of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, own unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &own); err != nil {
		return os.NewSyscallError("rt_sigprocmask", err)
	}
	err := cmd.Start()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &own, nil) // the mask it had: that cannot fail
	return err
}

// awaitGroup waits for a process to exit, or kills it when ctx ends, and in the end
// kills its process group. It leaves the process to be reaped, which is what keeps
// its number, and so that of the group, from being given to another.
func awaitGroup(ctx context.Context, pid int) (late bool) {
	kill := func() { // fails only where nobody is left
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_ = syscall.Kill(pid, syscall.SIGKILL) // if it has joined another group
	}
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		kill()
		close(killed)
	})
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			break // exited; there is no other error for a child of ours
		}
	}
	if !stop() {
		<-killed
		return true
	}
	kill()
	return false
}

// startFailure is why a command could not be run.
func startFailure(err error) error {
	if local := localFailure(err); local != nil {
		return local
	}
	if errors.Is(err, syscall.EAGAIN) { // of fork: too many processes
		return fmt.Errorf("%w: %w", ErrLocal, syscall.EAGAIN)
	}
	return &Failure{PROC, err}
}

// capped keeps the beginning of what is written to it and takes all of it.
type capped struct {
	most int

	mu   sync.Mutex // guards the following
	kept []byte
}

// Write keeps what there is room for.
func (c *capped) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, b[:min(len(b), c.most-len(c.kept))]...)
	return len(b), nil
}

// said is ": " and the output on one line, or nothing.
func (c *capped) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line := oneLine(string(c.kept)); line != "" {
		return ": " + line
	}
	return ""
}
