package metrics

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/udp"
)

func documentation(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// docs/metrics.md lists the catalogue: the same metrics in the same order with
// the same labels and words.
func TestDocumentation(t *testing.T) {
	var got []string
	for line := range strings.Lines(documentation(t)) {
		if strings.HasPrefix(line, "| `poise_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, f := range catalogue {
		labels := make([]string, len(f.labels))
		for i, l := range f.labels {
			labels[i] = "`" + l + "`"
		}
		want = append(want, "| `"+f.name+"` | "+f.kind+" | "+strings.Join(labels, ", ")+" | "+f.help+" |")
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("docs/metrics.md and names.go differ (-names.go +docs):", d)
	}
}

// Every word a label can have is explained there, and no other outcome.
func TestDocumentedWords(t *testing.T) {
	doc := documentation(t)
	words := balance.States()
	for o := range l4.NumOutcomes {
		words = append(words, l4.Outcome(o).String())
		if !strings.Contains(doc, "\n| `"+l4.Outcome(o).String()+"` | ") {
			t.Errorf("outcome %v has no row", l4.Outcome(o))
		}
	}
	for r := range l4.NumConnectReasons {
		words = append(words, l4.ConnectReason(r).String())
	}
	for r := range udp.NumDropReasons {
		words = append(words, udp.DropReason(r).String())
	}
	for _, r := range health.Reasons {
		words = append(words, string(r))
	}
	words = append(words, Authors...)
	words = append(words, StateReasons...)
	for _, w := range words {
		if !strings.Contains(doc, "`"+w+"`") {
			t.Errorf("%s is not explained", w)
		}
	}
	for line := range strings.Lines(doc) {
		word, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |")
		if ok && strings.HasPrefix(line, "| `") && !strings.HasPrefix(word, "poise_") && !slices.Contains(words, word) {
			t.Errorf("%s is no word any more", word)
		}
	}
}
