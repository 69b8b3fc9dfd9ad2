package arch

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// The names of cases are put together here, so that this file cites none.
const o = "O-"

func TestCasesOfTheHouse(t *testing.T) {
	findings, err := Cases(os.DirFS(moduleRoot(t)), "docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

func TestCases(t *testing.T) {
	tree := fstest.MapFS{
		"docs/cases.md":      {Data: []byte("# Cases\n\n- **" + o + "1** One. See " + o + "9.\n- **" + o + "2** Two.\n- **" + o + "3** Three.\n- **" + o + "3** Again.\n")},
		"a_test.go":          {Data: []byte("// Case " + o + "1, and " + o + "12 (b); FO" + o + "7 is none.\n")},
		"b.go":               {Data: []byte("// case " + o + "2, case " + o + "5\n")},
		"docs/b.md":          {Data: []byte("case " + o + "6, case " + o + "3\n")},
		"testdata/x_test.go": {Data: []byte("// Case " + o + "8.\n")},
		"c.txt":              {Data: []byte(o + "10")},
	}
	got, err := Cases(tree, "docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a_test.go: cites " + o + "12, which docs/cases.md does not have",
		"b.go: cites " + o + "5, which docs/cases.md does not have",
		"docs/b.md: cites " + o + "6, which docs/cases.md does not have",
		"docs/cases.md: " + o + "3 is listed twice",
		"docs/cases.md: no test cites " + o + "2",
		"docs/cases.md: no test cites " + o + "3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if _, err := Cases(tree, "docs/none.md"); err == nil {
		t.Error("a page that is missing went unnoticed")
	}
}
