package rig

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// LimitDescriptors starts a process with so few descriptors, for good.
func LimitDescriptors(n int) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, n), c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}
}

// CPU returns the CPU time that the process has taken.
func (p *Proc) CPU(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	// proc_pid_stat(5): utime and stime are fields 14 and 15, in ticks of 10 ms;
	// field 2, in parentheses, may have spaces in it.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[14-3]+" "+fields[15-3], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// Descriptors returns how many are open.
func (p *Proc) Descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Pipes returns how many of the descriptors are ends of pipes.
func (p *Proc) Pipes(t *testing.T) (n int) {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// Resident returns the resident memory in bytes.
func (p *Proc) Resident(t *testing.T) (n int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	if _, err := fmt.Sscan(string(b), &size, &n); err != nil {
		t.Fatal(err)
	}
	return n * int64(os.Getpagesize())
}

// Sockets returns the states of the TCP sockets that a balancer which listens at
// listen has, or has left to the kernel: its ends of connections with clients and
// with backends. Those in TIME-WAIT, an orderly end, and the listener are left
// out.
func Sockets(t testing.TB, listen string, backends ...string) (list []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const timeWait, listening = "06", "0A" // include/net/tcp_states.h
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // sl local remote state ...
		if f[0] == "sl" || f[3] == timeWait || f[3] == listening {
			continue
		}
		if f[1] == procAddr(listen) || slices.ContainsFunc(backends, func(b string) bool { return f[2] == procAddr(b) }) {
			list = append(list, fmt.Sprintf("%s -> %s in state %s", f[1], f[2], f[3]))
		}
	}
	return list
}

// procAddr is an IPv4 address as /proc/net/tcp writes it: a little-endian word.
func procAddr(addr string) string {
	a := netip.MustParseAddrPort(addr)
	b := a.Addr().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}

// CapabilitiesOf returns the effective capabilities of the process.
func CapabilitiesOf(t *testing.T, p *Proc) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "CapEff:\t")
	text, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
