package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
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
	if err := l.Close(time.Second); err != nil {
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
	l := New(&s, Poise, 1, quiet())
	for i := range 3 {
		l.Record(session(i))
		eventually(t, "line", func() bool { return strings.Count(s.String(), "\n") == i+1 })
	}
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestRecordAfterClose(t *testing.T) {
	var s sink
	l := New(&s, Poise, 10, quiet())
	if err := errors.Join(l.Close(time.Second), l.Close(time.Second)); err != nil {
		t.Fatal(err)
	}
	l.Record(session(1))
	if s.String() != "" || l.Dropped() != 1 {
		t.Errorf("%q, %d dropped", s.String(), l.Dropped())
	}
}

func TestNothingIsLostOrDoubledUnderConcurrency(t *testing.T) {
	var s sink
	l := New(&s, Poise, 64, quiet())
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
	if err := l.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	if n := uint64(strings.Count(s.String(), "\n")); n+l.Dropped() != goroutines*each {
		t.Errorf("%d written + %d dropped, recorded %d", n, l.Dropped(), goroutines*each)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	l := New(io.Discard, Poise, 1<<14, quiet())
	defer l.Close(time.Second)
	s := session(1)
	for range 2000 { // let the buffer grow
		l.Record(s)
	}
	if n := testing.AllocsPerRun(5000, func() { l.Record(s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	l := New(io.Discard, Poise, DefaultQueue, quiet())
	defer l.Close(time.Second)
	s := session(1)
	b.ReportAllocs()
	for b.Loop() {
		l.Record(s)
	}
	b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/op")
}
