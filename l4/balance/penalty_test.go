package balance

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A penalty is the same number in Go and in C: both read one file.
func TestPenaltyVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/penalty.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		var word uint64
		var now uint32
		var want int64
		if _, err := fmt.Sscanf(line, "%x %d %d", &word, &now, &want); err != nil {
			continue
		}
		n++
		if got := penalty(word).at(now).flows(); got != want {
			t.Errorf("%x at %d: %d, want %d", word, now, got, want)
		}
	}
	if n < 100 {
		t.Errorf("only %d vectors", n)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "penalty")
	if out, err := exec.Command(cc, "-std=c99", "-Wall", "-Werror", "-O1", "-o", program, "testdata/penalty.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// In steps it fades as fast as it would without them, however often something is added: at
// a failure each 100 ms the penalty comes to rest at about 10 s / ln 2 of failures.
func TestPenaltyOfManyFailures(t *testing.T) {
	var word atomic.Uint64
	now := uint32(math.MaxUint32 - 30_000) // the clock wraps on the way
	for range 3000 {
		now += 100
		renew(&word, now, func(p penalty) penalty { return p.plus(oneFlow, now) })
	}
	if got := penalty(word.Load()).at(now).flows(); got < 138 || got > 152 {
		t.Errorf("%d flows, want about 144", got)
	}
	for range 100_000 {
		renew(&word, now, func(p penalty) penalty { return p.plus(oneFlow, now) })
	}
	if got := penalty(word.Load()).flows(); got != 1<<16 {
		t.Errorf("%d flows at most", got)
	}
	if got := penalty(word.Load()).at(now + 320_000); got != 0 {
		t.Errorf("%x is left", got)
	}
}
