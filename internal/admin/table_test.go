package admin

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Error(path, "(-want +got):", d)
	}
}

func TestTable(t *testing.T) {
	s := sample()
	var out bytes.Buffer
	if err := StatusTable(&out, s); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", out.Bytes())

	refused := Status{
		Version: "v0.1.0", PID: 1, Started: s.Started, Now: s.Now, State: "stopping", Config: "/etc/poise/poise.yaml",
		LastReload: ReloadInfo{At: s.Now, Error: "poise.yaml:12:7: pools.pg.balance: no\npoise.yaml:31:3: services.mqtt.pool: no"},
	}
	golden(t, "refused.txt", style{}.table(&refused))
	golden(t, "colour.txt", style{colour: true, width: 100}.table(&s))
	golden(t, "narrow.txt", style{width: 80}.table(&s))
}

// At 100 columns nothing is wider, whatever the names and however large the
// numbers.
func TestTableFits(t *testing.T) {
	s := sample()
	s.Services[0].Listen = []string{"[2001:db8:1111:2222:3333:4444:5555:6666]:5432", "192.0.2.1:5432"}
	s.Services[0].Name = strings.Repeat("long-", 20)
	s.Services[0].TLS.Certificates[0] = Certificate{Path: strings.Repeat("/path", 30), Names: []string{strings.Repeat("a.", 90), "b"}, KeyType: "ECDSA P-256"}
	for _, p := range s.Pools {
		for i := range p.Backends {
			b := &p.Backends[i]
			b.Name, b.Address = strings.Repeat("name", 10), "[2001:db8:1111:2222:3333:4444:5555:6666]:65535"
			b.State, b.Weight, b.Connections, b.Total = "unresolved", 65535, 999_999, 1<<63
			b.ConnectFailures, b.ConnectP50, b.ConnectP99 = 1<<63, 0.999_4e-3, 0.999_4e-3
			b.Rates = &Rates{1e9, 1e12, 1e12}
			b.Reason = strings.Repeat("because ", 40)
		}
	}
	for line := range strings.Lines(string(style{width: 100}.table(&s))) {
		if strings.HasPrefix(line, "warning: ") {
			continue // is not cut: its end says what is done meanwhile
		}
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d: %s", n, line)
		}
	}
}

// Backends' words reach the terminal as words.
func TestTableIsPlain(t *testing.T) {
	s := sample()
	s.Pools[0].Backends[2].Reason = "L7RSP: \x1b]0;owned\x07\u202egnp\nx"
	s.Services[0].Name = "a\x1b[2Jb"
	s.Services[0].TLS.Certificates[0].Names = []string{"\x1b[31mred\u202e"}
	out := string(style{}.table(&s))
	if strings.ContainsAny(out, "\x1b\x07\u202e") || !strings.Contains(out, "L7RSP: \ufffd]0;owned\ufffd\ufffdgnp\ufffdx") {
		t.Error(out)
	}
}

func TestTableOnTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip("needs pseudo terminals: ", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 80, Row: 50}); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		buf := make([]byte, 64<<10)
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	small := Status{State: "running", Services: []Service{{Name: "s", State: "up"}}}
	t.Setenv("NO_COLOR", "")
	if err := StatusTable(tty, small); err != nil {
		t.Fatal(err)
	}
	if got := read(); !strings.Contains(got, "\x1b[32mrunning") {
		t.Errorf("%q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if err := StatusTable(tty, small); err != nil {
		t.Fatal(err)
	}
	if got := read(); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

func TestTexts(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 7: "7", 9999: "9999", 10_000: "10.0k", 12_345: "12.3k", 99_949: "99.9k", 99_951: "100k", 999_499: "999k",
		999_500: "1.00M", 7_894_999: "7.89M", 1e9: "1.00G", 1e12: "1.00T", 1e15: "1.00P", 1 << 63: "9223P",
	} {
		if got := short(n); got != want {
			t.Errorf("short(%v) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0", 0.04: "0.0", 0.3: "0.3", 99.94: "99.9", 99.96: "100", 1234.5: "1234", 20_000: "20.0k"} {
		if got := shortRate(n); got != want {
			t.Errorf("shortRate(%v) = %s, want %s", n, got, want)
		}
	}
	for s, want := range map[float64]string{
		0: "–", -1: "–", 9e-7: "0.90µs", 1e-6: "1.00µs", 0.000_31: "310µs", 0.000_999_6: "1.00ms", 0.0123: "12.3ms",
		0.9994: "999ms", 0.9996: "1.00s", 12.34: "12.3s", 999.6: "16m 39s", 4000: "1h 6m",
	} {
		if got := seconds(s); got != want {
			t.Errorf("seconds(%v) = %s, want %s", s, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", 60 * time.Second: "1m 0s",
		3599 * time.Second: "59m 59s", 3600 * time.Second: "1h 0m", 49 * time.Hour: "2d 1h",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%v) = %s, want %s", d, got, want)
		}
	}
}
