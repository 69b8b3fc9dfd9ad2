package health

import (
	"errors"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// groups knows whose process group a number is. Where Poise is process 1, as in a
// container, what a check program leaves behind becomes its child and stays a zombie
// until it is waited for, by group, as waiting for any child would take those of
// os/exec. The number of a group that is empty may be given to another check, hence the
// lock: a check that runs is in led.
type groups struct {
	mu  sync.Mutex // guards the following
	led map[int]*exec.Cmd
}

var leaders = groups{led: map[int]*exec.Cmd{}}

// start starts a command that is to lead a process group.
func (g *groups) start(cmd *exec.Cmd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := startUnblocked(cmd); err != nil {
		return err
	}
	g.led[cmd.Process.Pid] = cmd
	return nil
}

// reap waits for the children of this process in the group of a command that has been
// waited for, all of which have been killed. Elsewhere than in process 1 there are none,
// and it costs one system call.
func (g *groups) reap(cmd *exec.Cmd) {
	for g.reapDead(cmd) {
		// Until the one that is seen here is reaped the group keeps its number.
		for errors.Is(unix.Waitid(unix.P_PGID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), syscall.EINTR) {
		}
	}
}

// reapDead reaps those that have died and reports whether there are others.
func (g *groups) reapDead(cmd *exec.Cmd) (more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pid := cmd.Process.Pid
	if g.led[pid] != cmd {
		return false // the number is another check's by now, so nothing was left of the group
	}
	for {
		n, err := unix.Wait4(-pid, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // there is no such child
			delete(g.led, pid)
			return false
		case n == 0:
			_ = syscall.Kill(-pid, syscall.SIGKILL) // what has joined the group since
			return true
		}
	}
}
