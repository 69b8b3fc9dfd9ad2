package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// As process 1 of a container Poise reaps what its check programs leave behind: none
// of 20 checks finds a zombie of those before it.
func TestLabExecOrphans(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		err = exec.Command(unshare, "--pid", "--fork", "--mount-proc", "true").Run()
	}
	if err != nil {
		rig.Unavailable(t, "no process namespace of its own: "+err.Error())
	}
	dir := t.TempDir()
	found, program := filepath.Join(dir, "found"), filepath.Join(dir, "check")
	script := fmt.Sprintf("#!/bin/sh\n(sleep 1000 &)\necho $PPID $(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' Z 1 ') >>%s\n", found)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	web := rig.Backend(t, "web", loadgen.Behaviour{})
	p := rig.Start(t, "runtime: {allow_exec: true}\n"+rig.WebConfig(rig.Addr(t), "", fmt.Sprintf("check: {type: exec, interval: 50ms, exec: {command: [%s]}}", program), rig.Member("web", web.Addr())),
		func(c *exec.Cmd) {
			c.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", c.Path}, c.Args[1:]...)
			c.Path = unshare
		})
	t.Cleanup(func() { // unshare itself takes no SIGTERM, and ends with the process it waits for
		children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", p.PID()))
		if err != nil {
			t.Error(err)
		}
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		p.Wait(t)
	})
	var lines []string
	rig.Eventually(t, "20 checks", func() bool {
		b, _ := os.ReadFile(found)
		lines = strings.Split(strings.TrimSpace(string(b)), "\n")
		return len(lines) > 20
	})
	for i, line := range lines {
		if line != "1 0" {
			t.Fatalf("check %d: parent and zombies are %q", i, line)
		}
	}
}
