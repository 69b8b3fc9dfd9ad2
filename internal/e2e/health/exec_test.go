package health

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// A check program starts as from a clean shell, whatever Poise does with signals and
// whatever it was started with: no signal is ignored, and only descriptors 0 to 2 are
// open, in a process group of its own.
func TestExecStartsClean(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	found, program := filepath.Join(dir, "found"), filepath.Join(dir, "check")
	script := fmt.Sprintf(`#!/bin/sh
{ grep SigIgn /proc/$$/status; cut -d' ' -f1,5 /proc/$$/stat; ls /proc/$$/fd; } >%[1]s.new
mv %[1]s.new %[1]s
`, found)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	left, err := os.Open(program) // what the program that starts Poise forgot to close
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	web := rig.Backend(t, "web", loadgen.Behaviour{})
	rig.Start(t, "runtime: {allow_exec: true}\n"+rig.WebConfig(rig.Addr(t), "", fmt.Sprintf("check: {type: exec, interval: 100ms, exec: {command: [%s]}}", program), rig.Member("web", web.Addr())),
		func(c *exec.Cmd) { c.ExtraFiles = []*os.File{left, left} })
	var lines []string
	rig.Eventually(t, "the check to run", func() bool {
		b, err := os.ReadFile(found)
		lines = strings.Split(string(b), "\n")
		return err == nil && len(lines) > 3
	})
	// 32 and 33 are the C library's own: it lets no program set them.
	const library = 1<<31 | 1<<32
	var ignored uint64
	if _, err := fmt.Sscanf(lines[0], "SigIgn: %x", &ignored); err != nil || ignored&^library != 0 {
		t.Errorf("signals that are ignored: %q, %v", lines[0], err)
	}
	for _, fd := range lines[2:] {
		// A shell keeps its script and what it has redirected open at 10 and above.
		if len(fd) == 1 && fd > "2" {
			t.Errorf("descriptor %s is open, of %q", fd, lines[2:])
		}
	}
	if ids := strings.Fields(lines[1]); len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("process and its group: %q", lines[1])
	}
}

// Nor is a signal blocked that is blocked for Poise. The program is no shell: some of
// those clear the mask themselves.
func TestExecBlocksNoSignal(t *testing.T) {
	t.Parallel()
	found := filepath.Join(t.TempDir(), "found")
	web := rig.Backend(t, "web", loadgen.Behaviour{})
	// The thread, whose mask a child gets, ends with the test: it is not unlocked.
	runtime.LockOSThread()
	blocked := unix.Sigset_t{}
	blocked.Val[0] = 1<<(unix.SIGUSR2-1) | 1<<(unix.SIGALRM-1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil); err != nil {
		t.Fatal(err)
	}
	rig.Start(t, "runtime: {allow_exec: true}\n"+rig.WebConfig(rig.Addr(t), "", fmt.Sprintf("check: {type: exec, interval: 100ms, exec: {command: [/bin/cp, /proc/self/status, %s]}}", found), rig.Member("web", web.Addr())))
	mask := regexp.MustCompile(`(?m)^SigBlk:\s*(\w+)\nSigIgn`)
	var words [][]byte
	rig.Eventually(t, "the check to run", func() bool {
		b, err := os.ReadFile(found)
		words = mask.FindSubmatch(b)
		return err == nil && words != nil
	})
	if string(words[1]) != "0000000000000000" {
		t.Errorf("signals that are blocked: %s", words[1])
	}
}
