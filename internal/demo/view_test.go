package demo

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/internal/loadgen"
	"github.com/poise-lb/poise/l4/balance"
)

func testFrame() frame {
	ms := time.Millisecond
	return frame{
		balance: "least-conn", listen: "127.0.0.1:40001", page: "127.0.0.1:40002",
		elapsed: 12 * time.Second,
		scene:   fullScript("least-conn")[1], number: 2, of: 4, progress: 0.5,
		rows: []row{
			{"db1", "ejected", 5, view{11.6, 401 * ms, 404 * ms}},
			{"db2", "up", 18, view{114, 40960 * time.Microsecond, 45 * ms}},
			{"db3", "down", 0, view{}},
		},
		all: view{240, 41 * ms, 402 * ms}, totals: totals{answered: 2800}, retried: 3,
		log: []string{"level=INFO msg=ready"},
	}
}

func TestRender(t *testing.T) {
	want := strings.TrimPrefix(`
poise demo   least-conn   240 connections/s to 127.0.0.1:40001   12s

scene 2/4   db1 slows down to 400 ms                █████████─────────
            Open connections stay level, so db1 gets a tenth of the new ones.

backend  state    connections       new/s                      p50      p99
db1      ejected     5 ██▌             12 █▏                 401ms    404ms
db2      up         18 █████████      114 ██████████▊       41.0ms   45.0ms
db3      down        0                  0                        -        -

clients  2800 answered  0 failed  3 retried  p50 41.0ms  p99 402ms

daemon   level=INFO msg=ready



status page http://127.0.0.1:40002/                      Ctrl-C ends the demo`, "\n")
	var got []string
	for _, line := range render(testFrame(), plain) {
		got = append(got, strings.TrimRight(line, " "))
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whatever is shown fits 80 columns, and colours add none.
func TestFramesFit(t *testing.T) {
	for name := range evenly {
		if balance.Named(name).New == nil {
			t.Errorf("there are words for %s, which is no algorithm", name)
		}
		if unevenly[name] == "" {
			t.Errorf("%s has no words for a slow backend", name)
		}
		for _, s := range fullScript(name) {
			f := testFrame()
			f.balance, f.scene, f.page, f.listen = name, s, "127.0.0.1:65535", "127.0.0.1:65535"
			f.elapsed = 99999 * time.Second
			f.totals = totals{answered: 9999999, failed: 99999}
			f.retried = 99999
			for i := range f.rows {
				f.rows[i].connections = 4000
				f.rows[i].view = view{99999, 8888 * time.Millisecond, 99 * time.Second}
			}
			coloured := render(f, coloured)
			for i, line := range render(f, plain) {
				if n := utf8.RuneCountInString(line); n > 80 {
					t.Errorf("%d columns: %s", n, line)
				}
				if clip(coloured[i], 200) != coloured[i] {
					t.Errorf("colours take columns: %q", coloured[i])
				}
			}
			if n := utf8.RuneCountInString(sceneLine(f, time.Hour)); n > 80 {
				t.Errorf("%d columns: %s", n, sceneLine(f, time.Hour))
			}
		}
	}
}

func TestScriptAddsUp(t *testing.T) {
	var sum float64
	for _, s := range fullScript("p2c") {
		sum += s.share
	}
	if sum < 0.999 || sum > 1.001 {
		t.Errorf("the scenes take %v of the time", sum)
	}
}

func TestBars(t *testing.T) {
	for _, tc := range []struct {
		share float64
		want  string
	}{{0, "    "}, {0.0001, "▏   "}, {0.25, "█   "}, {0.5 + 1.0/32, "██▏ "}, {1, "████"}, {7, "████"}, {-1, "    "}} {
		if got := padded(tc.share, 4); got != tc.want {
			t.Errorf("%v is %q, want %q", tc.share, got, tc.want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, tc := range []struct {
		line  string
		width int
		want  string
	}{
		{"abc", 5, "abc"},
		{"abcdef", 3, "abc"},
		{"\x1b[1mabc\x1b[0mdef", 2, "\x1b[1mab\x1b[0m"},
		{"█▌x", 2, "█▌"},
	} {
		if got := clip(tc.line, tc.width); got != tc.want {
			t.Errorf("%q at %d is %q, want %q", tc.line, tc.width, got, tc.want)
		}
	}
}

func TestScreenRedrawsInPlace(t *testing.T) {
	var out strings.Builder
	s := &screen{w: &out, size: func() (int, int) { return 5, 4 }}
	draw := func(lines ...string) string {
		t.Helper()
		out.Reset()
		if err := s.draw(lines); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const begin, end = "\x1b[?2026h\x1b[?25l\r", "\x1b[J\x1b[?2026l"
	for i, tc := range []struct{ got, want string }{
		{draw("one", "two"), begin + "one\x1b[K\r\ntwo\x1b[K" + end},
		// The cursor goes from the second line back to the first; a long line is cut.
		{draw("one more", "two"), begin + "\x1b[1Aone m\x1b[K\r\ntwo\x1b[K" + end},
		// A block never scrolls the terminal: one line of it stays free.
		{draw("1", "2", "3", "4"), begin + "\x1b[1A1\x1b[K\r\n2\x1b[K\r\n3\x1b[K" + end},
		{draw("1"), begin + "\x1b[2A1\x1b[K" + end},
	} {
		if tc.got != tc.want {
			t.Errorf("draw %d: %q, want %q", i, tc.got, tc.want)
		}
	}
	out.Reset()
	s.close()
	if want := begin + "1\x1b[K" + end + "\x1b[?25h\r\n"; out.String() != want {
		t.Errorf("close: %q, want %q", out.String(), want)
	}
}

func TestOnlyATerminalIsDrawnOn(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if newScreen(w) != nil || newScreen(new(strings.Builder)) != nil {
		t.Error("a pipe or a buffer is taken for a terminal")
	}
}

func TestSamples(t *testing.T) {
	s := samples{window: time.Second}
	start := time.Now()
	now := start
	for i := range 5000 {
		now = now.Add(10 * time.Millisecond)
		one := loadgen.Sample{Backend: "a", End: now, Latency: time.Duration(i%100+1) * time.Millisecond}
		if i%2 == 1 {
			one.Backend = "b"
		}
		s.observe(one)
	}
	s.observe(loadgen.Sample{Err: os.ErrClosed})
	views, sum := s.last(now, start)
	if sum != (totals{5000, 1}) {
		t.Errorf("totals %+v", sum)
	}
	if a := views["a"]; a.rate != 50 || a.p50 != 51*time.Millisecond || a.p99 != 99*time.Millisecond {
		t.Errorf("a is %+v, want 50/s of 51 and 99 ms", a)
	}
	if all := views[""]; all.rate != 100 {
		t.Errorf("all is %+v, want 100/s", all)
	}
	if len(s.recent) > 2000 {
		t.Errorf("%d samples are kept", len(s.recent))
	}
	// A scene that has just begun is not shown what was before it.
	views, _ = s.last(now, now.Add(-100*time.Millisecond))
	if got := views["a"].rate; got < 49 || got > 51 {
		t.Errorf("rate since 100 ms is %v, want 50", got)
	}
}

func TestTail(t *testing.T) {
	var l tail
	fmt.Fprint(&l, "one\npa")
	fmt.Fprint(&l, "rt\n")
	if diff := cmp.Diff([]string{"one", "part"}, l.last(5)); diff != "" {
		t.Error(diff)
	}
	for i := range 200 {
		fmt.Fprintln(&l, i)
	}
	if diff := cmp.Diff([]string{"198", "199"}, l.last(2)); diff != "" {
		t.Error(diff)
	}
	if n := len(l.last(1000)); n != tailLines {
		t.Errorf("%d lines are kept, want %d", n, tailLines)
	}
}

func TestBriefLog(t *testing.T) {
	for line, want := range map[string]string{
		`time=2026-01-02T03:04:05Z level=WARN msg="backend is down" pool=db backend=db1 address=127.0.0.1:1 reason=L4CON`: "WARN backend is down backend=db1 reason=L4CON",
		`time=2026-01-02T03:04:05Z level=INFO msg=started`:                                                                "INFO started",
		"not of slog": "not of slog",
	} {
		if got := brief(line); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
