package accesslog

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/poise-lb/poise/l4"
)

// section is a part of docs/operations.md: from one heading up to another.
func section(t *testing.T, from, to string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "\n"+from+"\n")
	text, _, end := strings.Cut(text, "\n"+to+"\n")
	if !ok || !end {
		t.Fatalf("no section from %q to %q", from, to)
	}
	return text
}

// Every outcome has one row of letters there, and where it names them (rather than
// the phase) they are those of the log.
func TestDocumentedLetters(t *testing.T) {
	_, table, _ := strings.Cut(section(t, "### How a connection ended", "## Admission"), "| outcome | letters |\n")
	table, _, _ = strings.Cut(table, "\n\n") // another table may follow
	quoted := regexp.MustCompile("`([^`]+)`")
	words := func(cell string) (list []string) {
		for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
			list = append(list, m[1])
		}
		return list
	}
	letters := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(line, "|---") {
			continue
		}
		outcomes, codes := words(cells[1]), words(strings.Split(cells[2], ", as ")[0])
		for i, o := range outcomes {
			if _, twice := letters[o]; twice {
				t.Errorf("%s has two rows", o)
			}
			switch {
			case strings.Contains(cells[2], " if ") || strings.Contains(cells[2], "phase"):
				letters[o] = ""
			case len(codes) == 1:
				letters[o] = codes[0]
			default:
				letters[o] = codes[i]
			}
		}
	}
	if len(letters) != l4.NumOutcomes {
		t.Errorf("%d outcomes, of %d", len(letters), l4.NumOutcomes)
	}
	for o := range l4.Outcome(l4.NumOutcomes) {
		documented, ok := letters[o.String()]
		if !ok {
			t.Errorf("%v has no row", o)
		}
		why, phase := termination(&l4.Session{Wait: l4.Unreached, Connect: l4.Unreached, Outcome: o, By: l4.Proxy})
		if got := string([]byte{why, phase}); documented != "" && got != documented {
			t.Errorf("%v is documented as %s, and is %s", o, documented, got)
		}
	}
}

// Every field of a JSON line is explained there, and in the package's own words.
func TestDocumentedFields(t *testing.T) {
	doc := section(t, "## Access log", "### How a connection ended")
	source, err := os.ReadFile("format.go")
	if err != nil {
		t.Fatal(err)
	}
	s := session(1)
	s.TLS = &l4.TLS{}
	var fields map[string]any
	if err := json.Unmarshal(appendJSON(nil, s), &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields["tls"].(map[string]any) {
		fields["tls."+name] = nil
	}
	for name := range fields {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/operations.md does not explain %s", name)
		}
		if word := strings.TrimPrefix(name, "tls."); !regexp.MustCompile(`(?m)^\t//[^"]*\b` + word + `\b`).Match(source) {
			t.Errorf("format.go does not explain %s", word)
		}
	}
}
