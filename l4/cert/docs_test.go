package cert

import (
	"os"
	"strings"
	"testing"
)

// The manual's file of ticket keys is one.
func TestManualShowsTicketKeys(t *testing.T) {
	manual := string(must(os.ReadFile("../../docs/operations.md")))
	_, section, _ := strings.Cut(manual, "\n### Session tickets\n")
	_, block, _ := strings.Cut(section, "\n```\n")
	block, _, ok := strings.Cut(block, "\n```\n")
	if !ok {
		t.Fatal("docs/operations.md shows no file of ticket keys")
	}
	got, err := loadTicketRoots([]content{{path: "docs/operations.md", data: []byte(block)}})
	if err != nil || len(got.roots) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// What the log says is found in the manual by searching for it.
func TestManualHasMessages(t *testing.T) {
	manual := string(must(os.ReadFile("../../docs/operations.md")))
	source := string(must(os.ReadFile("watch.go")))
	found := 0
	for _, call := range []string{`w.log.Info("`, `w.log.Warn("`} {
		for _, rest := range strings.Split(source, call)[1:] {
			message, _, _ := strings.Cut(rest, `"`)
			found++
			if !strings.Contains(manual, "| `"+message+"` |") {
				t.Errorf("docs/operations.md does not have %q", message)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d messages in watch.go, want 3", found)
	}
}
