package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/google/go-cmp/cmp"
)

// shape is a tree as text, with the place of each value, and what was reported.
func shape(data []byte, stretch int) string {
	var out strings.Builder
	var show func(n *node, depth int)
	show = func(n *node, depth int) {
		fmt.Fprintf(&out, "%*s%s %q %d", depth, "", n.kind, n.text, n.at.line)
		if n.kind != null { // the parser places what is not there after what came before, or before what follows
			fmt.Fprintf(&out, ":%d", n.at.column)
		}
		out.WriteByte('\n')
		for _, p := range n.pairs {
			fmt.Fprintf(&out, "%*s%q %d:%d\n", depth, "", p.key, p.at.line, p.at.column)
			show(p.value, depth+1)
		}
		for _, item := range n.items {
			show(item, depth+1)
		}
	}
	r := &report{}
	b := &builder{
		report: r, src: &source{name: "x.yaml"}, env: func(string) (string, bool) { return "", true },
		anchors: map[string]*node{}, rest: map[spot][]ast.MapNode{}, stretch: stretch,
	}
	n, ok := b.build(data)
	if n != nil && ok {
		show(n, 0)
	}
	if err := r.err(); err != nil {
		fmt.Fprintln(&out, err)
	}
	return out.String()
}

// TestSplit: a file comes to the same in pieces of one entry as in one piece.
func TestSplit(t *testing.T) {
	t.Parallel()
	samples := map[string]string{
		"dashes":       "a:\n- b: 1\n  c: 2\n  d: 3\n- e: 4\n  f: 5\ng: 6\nh:\n  - - i: 7\n      j: 8\n    - k: 9\n",
		"anchors":      "a: &x\n  b: 1\n  c: 2\nd: *x\n&k e: 1\nf: &y {g: 1}\n<<: *x\nh: *y\n",
		"question":     "a: 1\n? b\n: 2\nc: 3\n? d\n: e: 1\n  f: 2\ng: 1\n",
		"literals":     "a: |\n  b: 1\n  c: 2\nd: >\n  e: 1\n  f: 2\ng: h\n  i\n  j\n\"k\": 1\n'l': 2\n",
		"flow":         "a: {b: 1,\n c: 2,\nd: 3}\ne: [f: 1,\ng: 2]\nh: 1\n",
		"comments":     "# a: 1\na: 1 # b: 2\n# c\nd: # e\n  # f\n  g: 1\n# h\n  i: 2\nj: 3\n",
		"documents":    "---\na: 1\nb: 2\n...\n",
		"indentation":  "a:\n   b: 1\n   c: 2\n  d: 3\ne: 4\n",
		"under scalar": "a: 1\n  b: 2\n  c: 3\nd: 4\n",
		"twice":        "a: 1\nb: 2\na: 3\nb: 4\n",
	}
	for _, pattern := range []string{"testdata/*/*.yaml", "testdata/*/*/*.yaml", "../../configs/*.yaml", "../../configs/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			samples[file] = string(data)
		}
	}
	for name, text := range samples {
		for _, n := range []int{1, 2, 3} {
			if diff := cmp.Diff(shape([]byte(text), 1<<30), shape([]byte(text), n)); diff != "" {
				t.Errorf("%s in pieces of %d (-whole +pieces):\n%s", name, n, diff)
			}
		}
	}
}
