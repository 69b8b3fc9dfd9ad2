package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/l4"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink collects what is written; the zero value takes everything.
type sink struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	writes int
	fail   error // if set, Write takes room bytes and fails
	room   int
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.fail != nil {
		n := min(s.room, len(p))
		s.buf.Write(p[:n])
		s.room -= n
		return n, s.fail
	}
	return s.buf.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (s *sink) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func session(i int) *l4.Session {
	return &l4.Session{
		Service: "postgres", Pool: "pg", Backend: fmt.Sprintf("db%d", i),
		Flow: l4.Flow{
			Client: netip.MustParseAddrPort("192.0.2.7:51234"),
			VIP:    netip.MustParseAddrPort("192.0.2.1:5432"),
		},
		Start: time.Date(2009, time.February, 6, 12, 14, 14, 655_000_000, time.UTC),
		Wait:  12 * time.Microsecond, Connect: 310 * time.Microsecond,
		FirstByte: time.Millisecond, Total: 5007118 * time.Microsecond,
		BytesIn: 100, BytesOut: 212,
		ActConn: 3, SvcConn: 2, PoolConn: 2, BackendConn: 1,
	}
}

// eventually waits for something another goroutine does, without a limit that
// a slow machine could miss.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never happened: ", what)
		}
	}
}

func TestEveryLineIsWrittenOnceAndInOrder(t *testing.T) {
	var s sink
	const n = 3000
	l := New(&s, JSON, n, quiet())
	for i := range n {
		l.Record(session(i))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(s.String(), "\n"), "\n")
	if len(lines) != n || l.Dropped() != 0 {
		t.Fatalf("%d lines, %d dropped", len(lines), l.Dropped())
	}
	for i, line := range lines {
		var v struct{ Backend string }
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.Backend != fmt.Sprintf("db%d", i) {
			t.Fatalf("line %d: %s: %v", i, line, err)
		}
	}
	if s.writes > n/10 {
		t.Errorf("%d writes for %d lines recorded at once", s.writes, n)
	}
}

func TestLoneLineIsWrittenWithoutClose(t *testing.T) {
	var s sink
	l := New(&s, TCPLog, 1, quiet())
	for i := range 3 {
		l.Record(session(i))
		eventually(t, "line", func() bool { return strings.Count(s.String(), "\n") == i+1 })
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A target that blocks for ever costs lines, never time: not in Record and no
// more than the bound in Close.
func TestBlockedTarget(t *testing.T) {
	r, w := io.Pipe()
	l := New(w, TCPLog, 8, quiet())
	const n = 10_000
	for i := range n { // would deadlock here if Record could block
		l.Record(session(i))
	}
	if d := l.Dropped(); d < n/2 {
		t.Errorf("dropped %d of %d", d, n)
	}
	if err := l.Close(); !errors.Is(err, ErrLinesLost) { // nor would it return
		t.Errorf("Close: %v", err)
	}
	r.Close() // lets the writer goroutine end, which goleak sees to
	<-l.done
}

// A named pipe knows deadlines: its writer goroutine ends even though nobody
// ever reads.
func TestBlockedNamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, syscall.ENXIO) {
		t.Fatalf("opening a pipe nobody reads: %v", err)
	}
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, JSON, 10_000, quiet())
	for i := range 10_000 { // far more than a pipe holds
		l.Record(session(i))
	}
	if err := l.Close(); !errors.Is(err, ErrLinesLost) {
		t.Errorf("Close: %v", err)
	}
	<-l.done
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
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, JSON, 10_000, quiet())
	for i := range 10_000 {
		l.Record(session(i))
	}
	var s sink
	l.Switch(&s, TCPLog)
	eventually(t, "a line in the new target", func() bool {
		l.Record(session(7))
		return strings.Contains(s.String(), "pg/db7")
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l.Dropped() == 0 {
		t.Error("what the pipe did not take was not counted")
	}
}

// Lines lost to errors are counted, told once, and a torn line does not spoil
// the next one.
func TestFailingTarget(t *testing.T) {
	s := sink{fail: syscall.ENOSPC, room: 20}
	var msgs sink
	l := New(&s, TCPLog, 100, slog.New(slog.NewTextHandler(&msgs, nil)))
	for i := range 5 {
		l.Record(session(i))
		eventually(t, "count", func() bool { return l.Dropped() == uint64(i+1) })
	}
	s.heal()
	l.Record(session(9))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(msgs.String(), "no space left"); n != 1 {
		t.Errorf("told %d times:\n%s", n, msgs.String())
	}
	want := string(appendTCPLog(nil, session(0)))[:20] + "\n" + string(appendTCPLog(nil, session(9)))
	if got := s.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, TCPLog, 10_000, quiet())
	const rounds = 20
	for i := range rounds { // rename, write on, reopen: what logrotate does
		for range 100 {
			l.Record(session(i))
		}
		if err := os.Rename(path, fmt.Sprintf("%s.%d", path, i)); err != nil {
			t.Fatal(err)
		}
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm()&^0o640 != 0 {
			t.Fatalf("new file: %v, %v", fi, err)
		}
	}
	if err := l.Close(); err != nil {
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
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, TCPLog, 10, quiet())
	moved := dir + "2"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("Reopen: %v", err)
	}
	l.Record(session(1))
	if err := l.Close(); err != nil {
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
	l.Switch(&a, TCPLog)
	l.Record(session(1))
	eventually(t, "first line", func() bool { return a.String() != "" })
	l.Switch(&a, JSON)
	eventually(t, "JSON", func() bool {
		l.Record(session(2))
		return strings.Contains(a.String(), `{"time"`)
	})
	l.Switch(&b, TCPLog)
	eventually(t, "second target", func() bool {
		l.Record(session(3))
		return b.String() != ""
	})
	l.Switch(nil, "")
	l.Record(session(4))
	if err := l.Close(); err != nil {
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
	l := New(writers{&s}, TCPLog, 10, quiet())
	l.Record(session(1))
	eventually(t, "line", func() bool { return s.String() != "" })
	l.Switch(writers{&s, &s}, TCPLog)
	l.Record(session(2))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

type writers []io.Writer

func (w writers) Write(p []byte) (int, error) { return io.MultiWriter(w...).Write(p) }

func TestRecordAfterClose(t *testing.T) {
	var s sink
	l := New(&s, TCPLog, 10, quiet())
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	l.Record(session(1))
	if s.String() != "" || l.Dropped() != 1 {
		t.Errorf("%q, %d dropped", s.String(), l.Dropped())
	}
}

func TestNothingIsLostOrDoubledUnderConcurrency(t *testing.T) {
	var s sink
	l := New(&s, TCPLog, 64, quiet())
	const goroutines, each = 8, 2000
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range each {
				l.Record(session(i))
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := uint64(strings.Count(s.String(), "\n")); n+l.Dropped() != goroutines*each {
		t.Errorf("%d written + %d dropped, recorded %d", n, l.Dropped(), goroutines*each)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	l := New(io.Discard, TCPLog, 1<<14, quiet())
	defer l.Close()
	s := session(1)
	for range 2000 { // let the buffer grow
		l.Record(s)
	}
	if n := testing.AllocsPerRun(5000, func() { l.Record(s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	l := New(io.Discard, TCPLog, DefaultQueue, quiet())
	defer l.Close()
	s := session(1)
	b.ReportAllocs()
	for b.Loop() {
		l.Record(s)
	}
	b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/op")
}
