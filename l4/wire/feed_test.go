package wire

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// feedProxy hands a stream to a parser, growing to each of the lengths in turn, and
// stops where the parser does.
func feedProxy(accept ProxyAccept, stream []byte, lengths []int) (h ProxyHeader, n int, err error) {
	p := ProxyParser{Accept: accept}
	for _, l := range lengths {
		if n, err = p.Next(stream[:l:l]); n > 0 || err != nil {
			break
		}
	}
	return p.Header(), n, err
}

// feedHello does the same with a ClientHello.
func feedHello(stream []byte, lengths []int) (p HelloParser, done bool, err error) {
	for _, l := range lengths {
		if done, err = p.Next(stream[:l:l]); done || err != nil {
			break
		}
	}
	return p, done, err
}

// eachByte returns 1, 2, ... n.
func eachByte(n int) []int {
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = i + 1
	}
	return lengths
}

// splits calls f with ways of cutting n bytes into segments: all at once, every byte
// alone, and all pairs.
func splits(n int, f func(lengths []int)) {
	f([]int{n})
	f(eachByte(n))
	for i := range n {
		f([]int{i, n})
	}
}

// drawLengths draws a way of cutting n bytes into segments.
func drawLengths(t *rapid.T, n int) []int {
	var lengths []int
	for at := 0; at < n; {
		at = min(n, at+rapid.IntRange(1, max(1, n/2)).Draw(t, "segment"))
		lengths = append(lengths, at)
	}
	return lengths
}

func sameError(a, b error) bool { return errors.Is(a, b) && errors.Is(b, a) }

func noAllocations(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}
