package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/spool"
)

// A target that blocks for ever costs lines, never time: not in Record and no
// more than the bound in Close.
func TestBlockedTarget(t *testing.T) {
	r, w := io.Pipe()
	l := New(w, Poise, 8, quiet())
	const n = 10_000
	for i := range n { // would deadlock here if Record could block
		l.Record(session(i))
	}
	if d := l.Dropped(); d < n/2 {
		t.Errorf("dropped %d of %d", d, n)
	}
	if err := l.Close(time.Second); !errors.Is(err, spool.ErrLinesLost) { // nor would it return
		t.Errorf("Close: %v", err)
	}
	r.Close() // lets the writer goroutine end, which goleak sees to
}

// A named pipe knows deadlines: its writer goroutine ends even though nobody
// ever reads.
func TestBlockedNamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := spool.Open(path); !errors.Is(err, syscall.ENXIO) {
		t.Fatalf("opening a pipe nobody reads: %v", err)
	}
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := spool.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, JSON, 10_000, quiet())
	for i := range 10_000 { // far more than a pipe holds
		l.Record(session(i))
	}
	if err := l.Close(time.Second); !errors.Is(err, spool.ErrLinesLost) {
		t.Errorf("Close: %v", err)
	}
}

// Switching away from a stuck pipe gets the log going again.
func TestSwitchAwayFromStuckTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := spool.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, JSON, 10_000, quiet())
	for i := range 10_000 {
		l.Record(session(i))
	}
	var s sink
	l.Switch(&s, Poise)
	eventually(t, "a line in the new target", func() bool {
		l.Record(session(7))
		return strings.Contains(s.String(), "pg/db7")
	})
	// The old target has half a second for what it was given.
	eventually(t, "what the pipe did not take to be counted", func() bool { return l.Dropped() > 0 })
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
}

// Lines lost to errors are counted, told once, and a torn line does not spoil
// the next one.
func TestFailingTarget(t *testing.T) {
	s := sink{fail: syscall.ENOSPC, room: 20}
	var msgs sink
	l := New(&s, Poise, 100, slog.New(slog.NewTextHandler(&msgs, nil)))
	for i := range 5 {
		l.Record(session(i))
		eventually(t, "count", func() bool { return l.Dropped() == uint64(i+1) })
	}
	s.heal()
	l.Record(session(9))
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(msgs.String(), "no space left"); n != 1 {
		t.Errorf("told %d times:\n%s", n, msgs.String())
	}
	want := string(appendPoise(nil, session(0)))[:20] + "\n" + string(appendPoise(nil, session(9)))
	if got := s.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := spool.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, Poise, 10_000, quiet())
	const rounds = 20
	for i := range rounds { // rename, write on, reopen: what logrotate does
		for range 100 {
			l.Record(session(i))
		}
		if err := os.Rename(path, fmt.Sprintf("%s.%d", path, i)); err != nil {
			t.Fatal(err)
		}
		if err := l.Reopen(time.Minute); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm()&^0o640 != 0 {
			t.Fatalf("new file: %v, %v", fi, err)
		}
	}
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(path + "*")
	if len(files) != rounds+1 {
		t.Errorf("%d files", len(files))
	}
	lines := 0
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(data, []byte("--/ok 3/2/2/1/0 0/0\n"))
	}
	if lines != rounds*100 || l.Dropped() != 0 {
		t.Errorf("%d lines, %d dropped", lines, l.Dropped())
	}
}

func TestReopenFailureKeepsTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "access.log")
	f, err := spool.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, Poise, 10, quiet())
	moved := dir + "2"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(time.Minute); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("Reopen: %v", err)
	}
	l.Record(session(1))
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(moved, "access.log"))
	if err != nil || !bytes.Contains(data, []byte("pg/db1")) {
		t.Errorf("%q, %v", data, err)
	}
}

func TestSwitch(t *testing.T) {
	var a, b sink
	l := New(nil, "", 100, quiet())
	l.Record(session(0)) // off: not logged, and not lost either
	l.Switch(&a, Poise)
	l.Record(session(1))
	eventually(t, "first line", func() bool { return a.String() != "" })
	l.Switch(&a, JSON)
	eventually(t, "JSON", func() bool {
		l.Record(session(2))
		return strings.Contains(a.String(), `{"time"`)
	})
	l.Switch(&b, Poise)
	eventually(t, "second target", func() bool {
		l.Record(session(3))
		return b.String() != ""
	})
	l.Switch(nil, "")
	l.Record(session(4))
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	if l.Dropped() != 0 {
		t.Errorf("%d dropped", l.Dropped())
	}
	all := a.String() + b.String()
	if strings.Contains(all, "db0") || strings.Contains(all, "db4") || !strings.Contains(all, "pg/db1") {
		t.Error(all)
	}
}

// A writer whose type cannot be compared is a writer like any other.
func TestSwitchOfIncomparableWriters(t *testing.T) {
	var s sink
	l := New(writers{&s}, Poise, 10, quiet())
	l.Record(session(1))
	eventually(t, "line", func() bool { return s.String() != "" })
	l.Switch(writers{&s, &s}, Poise)
	l.Record(session(2))
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
}

type writers []io.Writer

func (w writers) Write(p []byte) (int, error) { return io.MultiWriter(w...).Write(p) }
