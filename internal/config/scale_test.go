package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// large are files of n of something, each of which once took time by the square of n.
var large = []struct {
	name, head, line, foot string // the line has the number as %[1]d, and as two of an address and a port
}{
	{name: "services", head: "pools: {p: {backends: [10.0.0.1:80]}}\nservices:\n", line: "  s%[1]d: {listen: [\"127.0.%[2]d.1:%[3]d\"], pool: p}\n"},
	{name: "pools", head: "services: {}\npools:\n", line: "  p%[1]d: {backends: [\"127.0.%[2]d.1:%[3]d\"]}\n"},
	{
		name: "backends", head: "services: {s: {listen: [\":7000\"], pool: p}, t: {listen: [\":7001\"], pool: p}}\npools:\n  p:\n    backends:\n",
		line: "    - \"127.0.%[2]d.1:%[3]d\"\n",
	},
	{name: "one key many times", head: "services: {}\n", line: "log: {}\n"},
	{name: "unknown keys", head: "services: {}\n", line: "unknown%[1]d: 1\n"},
	{name: "unknown pools", head: "pools: {p: {backends: [10.0.0.1:80]}}\nservices:\n", line: "  s%[1]d: {listen: [\"127.0.%[2]d.1:%[3]d\"], pool: q%[1]d}\n"},
	{
		name: "names of SNI", head: "pools: {p: {backends: [10.0.0.1:80]}}\nservices:\n  s:\n    listen: [\":443\"]\n    sni:\n",
		line: "      h%[1]d.example.org: p\n",
	},
	{
		name: "prefixes", head: "pools: {p: {backends: [10.0.0.1:80]}}\nservices:\n  s:\n    listen: [\":443\"]\n    pool: p\n    access:\n      deny:\n",
		line: "        - 10.%[2]d.0.%[4]d\n",
	},
	{name: "inherited", head: "services: {}\ndefaults: {pools: {passive: {base: 10m}, backends: [10.0.0.1:80]}}\npools:\n", line: "  p%[1]d: {}\n"},
	{name: "merged", head: "x: &x {pool: p}\nservices:\n", line: "  s%[1]d: {<<: *x}\n"},
	{name: "question marks", head: "services:\n", line: "  ? s%[1]d\n  : {}\n"},
}

func largeFile(i, n int) []byte {
	var b strings.Builder
	b.WriteString(large[i].head)
	for k := range n {
		_, line, _ := strings.Cut(fmt.Sprintf("%[1]d%[2]d%[3]d%[4]d\x00"+large[i].line, k, k/250, 1000+k%10000, 1+k%250), "\x00")
		b.WriteString(line)
	}
	return []byte(b.String())
}

// BenchmarkParse shows that time grows as the file does: ns/entry stays the same.
func BenchmarkParse(b *testing.B) {
	for i := range large {
		for _, n := range []int{1000, 4000, 16000} {
			data := largeFile(i, n)
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(large[i].name, " ", "-"), n), func(b *testing.B) {
				for b.Loop() {
					_, _ = Parse("x.yaml", data)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
			})
		}
	}
}

// TestLargeFiles: six times the entries take about six times as long, not thirty-six.
// Of several tries the best counts, for others may need the processor.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	const few, times, most = 500, 6, 15
	for i := range large {
		t.Run(large[i].name, func(t *testing.T) {
			t.Parallel()
			small, big := largeFile(i, few), largeFile(i, times*few)
			ratio := math.Inf(1)
			for try := 0; try < 5 && ratio > most; try++ {
				ratio = min(ratio, parseTime(t, big).Seconds()/parseTime(t, small).Seconds())
			}
			if ratio > most {
				t.Errorf("%d times the entries take %.1f times as long", times, ratio)
			}
		})
	}
}

// parseTime is how long a file takes.
func parseTime(t *testing.T, data []byte) time.Duration {
	begin := time.Now()
	_, err := Parse("x.yaml", data)
	took := time.Since(begin)
	var problems Problems
	if errors.As(err, &problems) && len(problems) > maxProblems+1 {
		t.Errorf("%d problems are reported", len(problems))
	}
	return took
}

// TestManyFiles: conf.d may have a file for each service.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("poise.yaml", "pools: {p: {backends: [10.0.0.1:80]}}\n")
	const n = 2000
	for i := range n {
		write(fmt.Sprintf("conf.d/%04d.yaml", i), fmt.Sprintf("services: {s%d: {listen: [\":%d\"], pool: p}}\n", i, 1000+i))
	}
	f, err := Load(filepath.Join(dir, "poise.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Services) != n {
		t.Errorf("%d services", len(f.Services))
	}
}

// TestMoreProblems: the first by place are reported, and how many more there are.
func TestMoreProblems(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.yaml", largeFile(4, 5000))
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != maxProblems+1 {
		t.Fatalf("%d problems", len(problems))
	}
	if first := problems[0]; first.Line != 2 || first.Key != "unknown0" {
		t.Errorf("the first is %s", first)
	}
	if got, want := problems[maxProblems].String(), "x.yaml:102:1: yaml: 4900 more problems from here on; put those above right first"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = Parse("x.yaml", largeFile(4, maxProblems+1)) // there is as much room for it as for saying so
	if !errors.As(err, &problems) || len(problems) != maxProblems+1 || problems[maxProblems].Key != "unknown100" {
		t.Errorf("%d problems, the last %s", len(problems), problems[len(problems)-1])
	}
}

// TestTooMuchInherited: a default list counts in each that inherits it.
func TestTooMuchInherited(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("services: {}\ndefaults:\n  pools:\n    backends:\n")
	for i := range 3000 {
		fmt.Fprintf(&b, "      - 10.0.%d.%d:80\n", i/250, 1+i%250)
	}
	b.WriteString("pools:\n")
	for i := range 3000 {
		fmt.Fprintf(&b, "  p%d: {}\n", i)
	}
	_, err := Parse("x.yaml", []byte(b.String()))
	const want = "x.yaml:4:5: defaults.pools: 3000 pools inherit more than 4000000 values together; give long lists to those alone that need them"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
