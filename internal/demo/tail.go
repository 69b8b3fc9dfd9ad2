package demo

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// tail keeps the last lines written to it.
type tail struct {
	mu    sync.Mutex // guards the following
	part  []byte     // the beginning of a line
	lines []string
}

// tailLines is how many it keeps.
const tailLines = 50

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for {
		line, rest, found := bytes.Cut(t.part, []byte("\n"))
		if !found {
			return len(p), nil
		}
		t.lines = append(t.lines, string(line))
		if len(t.lines) > tailLines {
			t.lines = t.lines[1:]
		}
		t.part = append(t.part[:0], rest...)
	}
}

// last returns at most n of the last lines, the oldest first.
func (t *tail) last(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lines[max(len(t.lines)-n, 0):])
}

var (
	slogLine = regexp.MustCompile(`^time=\S+ level=(\w+) msg=(\w+|"[^"]*")(.*)$`)
	slogMore = regexp.MustCompile(` (pool|address)=\S+`)
)

// brief leaves out of a line of the daemon's log what goes without saying in a
// demonstration with one pool.
func brief(line string) string {
	m := slogLine.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	return m[1] + " " + strings.Trim(m[2], `"`) + slogMore.ReplaceAllString(m[3], "")
}
