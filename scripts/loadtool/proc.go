package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc: 100 on every
// architecture Linux exports to user space (see time(7)).
const ticksPerSecond = 100

// stat is the part of /proc/PID/stat that is used here; see proc(5).
type stat struct {
	parent int
	ticks  uint64 // utime + stime of all threads, also those that ended
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The command's name is in parentheses and may hold spaces and parentheses.
	_, rest, _ := cutLast(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return stat{}, fmt.Errorf("/proc/%d/stat: %d fields after the name", pid, len(f))
	}
	parent, err1 := strconv.Atoi(f[1])
	user, err2 := strconv.ParseUint(f[11], 10, 64)
	system, err3 := strconv.ParseUint(f[12], 10, 64)
	return stat{parent, user + system}, errors.Join(err1, err2, err3)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// tree returns the process and all its living descendants.
func tree(pid int) (map[int]stat, error) {
	root, err := readStat(pid)
	if err != nil {
		return nil, err
	}
	all := map[int]stat{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		p, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if s, err := readStat(p); err == nil { // else it ended meanwhile
			all[p] = s
		}
	}
	found := map[int]stat{pid: root}
	for grown := true; grown; {
		grown = false
		for p, s := range all {
			if _, known := found[p]; known {
				continue
			}
			if _, ours := found[s.parent]; ours {
				found[p], grown = s, true
			}
		}
	}
	return found, nil
}

// cpuSeconds returns the user and system time a process and its descendants
// have used, to a hundredth of a second.
func cpuSeconds(pid int) (float64, error) {
	processes, err := tree(pid)
	if err != nil {
		return 0, err
	}
	var ticks uint64
	for _, s := range processes {
		ticks += s.ticks
	}
	return float64(ticks) / ticksPerSecond, nil
}

// memory is resident memory in bytes: all of it, and what is the process's own
// (neither file pages nor shared ones). The kernel's share of a connection is
// in neither.
type memory struct{ rss, anon int64 }

func readMemory(pid int) (memory, error) {
	processes, err := tree(pid)
	if err != nil {
		return memory{}, err
	}
	var m memory
	for p := range processes {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		if errors.Is(err, fs.ErrNotExist) && p != pid {
			continue
		}
		if err != nil {
			return memory{}, err
		}
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(line, ":")
			if key != "VmRSS" && key != "RssAnon" {
				continue
			}
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return memory{}, fmt.Errorf("/proc/%d/status: %w", p, err)
			}
			if key == "VmRSS" {
				m.rss += kb << 10
			} else {
				m.anon += kb << 10
			}
		}
	}
	return m, nil
}
