package health

import (
	"regexp"
	"strings"
	"testing"
)

// search feeds a whole answer in pieces of n bytes.
func search(p Pattern, answer string, n int) (taken int, f finding) {
	m := p.matcher()
	for taken < len(answer) {
		piece := answer[taken:min(taken+n, len(answer))]
		k, f := m.feed([]byte(piece))
		taken += k
		if f != open {
			return taken, f
		}
	}
	return taken, m.end()
}

func TestPatternIsFoundHoweverTheAnswerIsCut(t *testing.T) {
	for _, tt := range []struct {
		p      Pattern
		answer string
		want   finding
		taken  int // up to and with the match, or up to where it became impossible
	}{
		{Pattern{Text: "OK"}, "OK\n", found, 2},
		{Pattern{Text: "OK"}, "x OK OK", found, 4},
		{Pattern{Text: "aab"}, "aaaab", found, 5},
		{Pattern{Text: "abcabd"}, "abcabcabd!", found, 9},
		{Pattern{Text: "ALIVE"}, "DEAD\n", impossible, 5},
		{Pattern{Text: "\x00\xff"}, "\x00\x00\xff", found, 3},
		{Pattern{}, "anything", found, 0},
		{Pattern{Regex: `O+K`}, "xOOK\n", found, 4},
		{Pattern{Regex: `^\+PONG`}, "+PONG\r\n", found, 5},
		{Pattern{Regex: `^\+PONG`}, "-ERR unknown command\r\n", impossible, 1},
		{Pattern{Regex: `^\+PONG`}, "+POX", impossible, 4},
		{Pattern{Regex: `(?m)^250 `}, "250-a\n250 b\n", found, 10},
		{Pattern{Regex: `OK$`}, "OKOK", found, 4},
		{Pattern{Regex: `OK$`}, "OK\n", impossible, 3},
		{Pattern{Regex: `(?m)OK$`}, "OK\n", found, 3},
		{Pattern{Regex: `\bup\b`}, "startup up.", found, 11},
		{Pattern{Regex: `\Bup`}, "startup", found, 7},
		{Pattern{Regex: `[0-9]{3}`}, "ab1234", found, 5},
		{Pattern{Regex: `é`}, "caf\xc3\xa9!", found, 5},
		{Pattern{Regex: `x.y`}, "x\xffy", found, 3},
		{Pattern{Regex: `(?i)ready`}, "READY", found, 5},
		{Pattern{Regex: `(?s)a.b`}, "a\nb", found, 3},
		{Pattern{Regex: `a.b`}, "a\nb", impossible, 3},
	} {
		for n := 1; n <= len(tt.answer); n++ {
			taken, f := search(tt.p, tt.answer, n)
			if f != tt.want || taken != tt.taken {
				t.Errorf("%s in %q by %d: %d after %d bytes, want %d after %d", tt.p, tt.answer, n, f, taken, tt.want, tt.taken)
			}
		}
	}
}

func TestMatcherKnowsWhetherAMatchHasBegun(t *testing.T) {
	for _, tt := range []struct {
		p      Pattern
		answer string
		want   bool
	}{
		{Pattern{Text: "+PONG"}, "+PO", true},
		{Pattern{Text: "+PONG"}, "-ERR", false},
		{Pattern{Regex: "PONG"}, "-P", true},
		{Pattern{Regex: "PONG"}, "-ERR", false},
	} {
		m := tt.p.matcher()
		if m.feed([]byte(tt.answer)); m.begun() != tt.want {
			t.Errorf("%s after %q: begun %v", tt.p, tt.answer, m.begun())
		}
	}
}

func TestParseRegex(t *testing.T) {
	for expr, want := range map[string]string{
		`^\+OK`: "", `(?i)ready|up`: "", "(": "missing closing )",
		"a*": "found in an empty answer", "^": "found in an empty answer", `^$`: "found in an empty answer",
		"a{1001}": "invalid repeat count",
	} {
		err := ParseRegex(expr)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}

// Both matchers against the searches of the standard library, which see the whole
// answer.
func FuzzPattern(f *testing.F) {
	for _, expr := range []string{"OK", `^\+PONG`, `(?m)^250 .*$`, `\bup\b`, `a|b*c`, `OK$`, `\B`, `x.y`, `(?i)é[^a]`, `^(ab)+\z`} {
		f.Add(expr, "250-a\n250 OK\r\n", uint8(3))
		f.Add(expr, "+PONG up abab\xff\xc3", uint8(1))
	}
	f.Fuzz(func(t *testing.T, expr, answer string, n uint8) {
		if n == 0 || len(expr) > 200 || len(answer) > 2000 {
			return
		}
		if expr != "" {
			taken, found := search(Pattern{Text: expr}, answer, int(n))
			i := strings.Index(answer, expr)
			if (i >= 0) != (found == 1) || i >= 0 && taken != i+len(expr) {
				t.Errorf("text %q in %q: %d after %d, index %d", expr, answer, found, taken, i)
			}
		}
		re, err := regexp.Compile(expr)
		if err != nil || expr == "" {
			return
		}
		taken, f := search(Pattern{Regex: expr}, answer, int(n))
		if whole := re.MatchString(answer); whole != (f == found) {
			t.Errorf("%q in %q by %d: %v, and %v of the whole", expr, answer, n, f == found, whole)
		}
		again, g := search(Pattern{Regex: expr}, answer, len(answer)+1)
		if taken != again || f != g {
			t.Errorf("%q in %q: %d after %d by %d, %d after %d at once", expr, answer, f, taken, n, g, again)
		}
	})
}
