package l4_test

import (
	"bytes"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/poise-lb/poise/l4"
)

const vectors = "testdata/hash.txt"

// Both boxes of a pair must agree, also when they run different releases during an
// upgrade, and so must a program in the kernel: these values may not change.
func TestHashVectors(t *testing.T) {
	text, err := os.ReadFile(vectors)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var addr []byte
		var port uint16
		var seed, hash, slot uint64
		if _, err := fmt.Sscanf(line, "%x %d %x %x %d", &addr, &port, &seed, &hash, &slot); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		a, ok := netip.AddrFromSlice(addr)
		if !ok {
			t.Fatalf("%s: no address", line)
		}
		n++
		got := l4.HashAddr(a.Unmap(), port, seed)
		if at, _ := bits.Mul64(got, 65537); got != hash || at != slot {
			t.Errorf("%s port %d with seed %x: got %x %d, want %x %d", a, port, seed, got, at, hash, slot)
		}
		if f := (l4.Flow{Client: netip.AddrPortFrom(a, port)}); f.Hash(seed) != hash {
			t.Errorf("%s port %d with seed %x: as a flow %x", a, port, seed, f.Hash(seed))
		}
	}
	if n < 20 {
		t.Errorf("only %d vectors", n)
	}
}

// The same vectors hold for the function in C, as an offload needs it.
func TestHashVectorsInC(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "hash")
	if out, err := exec.Command(cc, "-std=c99", "-Wall", "-Werror", "-O1", "-o", program, "testdata/hash.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(vectors)
	if err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) ([]byte, error) {
		cmd := exec.Command(program)
		cmd.Stdin = bytes.NewReader(text)
		return cmd.CombinedOutput()
	}
	if out, err := check(text); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := check(bytes.Replace(text, []byte(" 0 "), []byte(" 1 "), 1)); err == nil || len(out) == 0 {
		t.Error("a wrong vector passes")
	}
}
