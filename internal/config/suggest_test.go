package config

import (
	"testing"

	"github.com/goccy/go-yaml/lexer"
	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"listen", "pool", "timeouts", "max_connections", "retries"}
	for got, want := range map[string]string{
		"listenr": "listen", "lsiten": "listen", "Listen": "listen", "timeout": "timeouts", "timout": "timeouts",
		"max_conn": "max_connections", "maxconnections": "max_connections", "retry": "", "poll": "pool", "po": "",
		"": "", "x": "", "nothing": "",
	} {
		if s := Nearest(got, words); s != want {
			t.Errorf("Nearest(%q) = %q, want %q", got, s, want)
		}
	}
}

// TestDistance checks the properties of a distance, and swaps.
func TestDistance(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[abc]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) || d < max(len(a)-len(b), len(b)-len(a)) {
			t.Fatalf("distance(%q, %q) = %d", a, b, d)
		}
		if len(a) >= 2 {
			i := rapid.IntRange(0, len(a)-2).Draw(t, "i")
			swapped := a[:i] + a[i+1:i+2] + a[i:i+1] + a[i+2:]
			if d := distance(a, swapped); d > 1 {
				t.Fatalf("distance(%q, %q) = %d", a, swapped, d)
			}
		}
	})
}

// TestJoinAddresses: an address in brackets within braces is one value, and
// nothing else is touched.
func TestJoinAddresses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"{b: [10.0.0.1:80, 10.0.0.2:80]}": {"{", "b", ":", "[", "10.0.0.1:80", ",", "10.0.0.2:80", "]", "}"},
		"{b: [:80, 1:2:3]}":               {"{", "b", ":", "[", ":80", ",", "1:2:3", "]", "}"},
		"{b: [1.2.3.4:5000-5010]}":        {"{", "b", ":", "[", "1.2.3.4:5000-5010", "]", "}"},
		"{b: [unix:/x:1]}":                {"{", "b", ":", "[", "unix:/x:1", "]", "}"},
		"{b: [a: 1]}":                     {"{", "b", ":", "[", "a", ":", "1", "]", "}"},
		"{b: [\"a\":1]}":                  {"{", "b", ":", "[", "a", ":", "1", "]", "}"},
		"{b: [{a:1}]}":                    {"{", "b", ":", "[", "{", "a", ":", "1", "}", "]", "}"},
		"{a:1}":                           {"{", "a", ":", "1", "}"},
		"{b: [a:\n1]}":                    {"{", "b", ":", "[", "a", ":", "1", "]", "}"},
		"]: a":                            {"]", ":", "a"},
	} {
		var got []string
		for _, tk := range joinAddresses(lexer.Tokenize(in)) {
			got = append(got, tk.Value)
		}
		if len(got) != len(want) {
			t.Errorf("%q: got %q, want %q", in, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%q: got %q, want %q", in, got, want)
			}
		}
	}
}
