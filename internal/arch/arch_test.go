package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestHouse holds this repository to its own rules.
func TestHouse(t *testing.T) {
	root := moduleRoot(t)
	findings, err := Check(os.DirFS(root), House)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(mod), "module "+House.Module+"\n") {
		t.Errorf("the rules are about module %s, go.mod is not", House.Module)
	}
}

// TestTableRunsDownwards checks the table itself: a row that allows an upward
// arrow would let the tree rot by permission.
func TestTableRunsDownwards(t *testing.T) {
	for _, f := range House.Downwards() {
		t.Error(f)
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		t.Fatal("no go.mod above the working directory")
	}
}

// small is a house of four rooms, with a fifth planned.
func small() Rules {
	return Rules{
		Module: "example.org/m",
		Imports: map[string][]string{
			"base":     nil,
			"base/sys": nil,
			"app":      {"base", "base/sys", "attic"},
			"attic":    {"base"},
			"lab":      nil,
			"rig":      nil,
		},
		TestImports: map[string][]string{"base": {"base/sys"}},
		Tests:       []string{"lab", "rig"},
		Planned:     []string{"attic"},
		Floors:      [][]string{{"app"}, {"base"}, {"base/sys"}},
		Fenced:      []Fence{{Import: "golang.org/x/sys", Within: "base", Only: []string{"base/sys"}}},
		FolderNames: []string{"util"},
		MaxLines:    20,
		Long:        map[string]string{},
		Wall:        map[string]string{},
	}
}

// source is a file of package name with a comment, importing the paths.
func source(name string, imports ...string) string {
	s := fmt.Sprintf("// Package %s is a fixture.\npackage %s\n", name, name)
	for _, i := range imports {
		s += fmt.Sprintf("import _ %q\n", i)
	}
	return s
}

func TestCheck(t *testing.T) {
	const m = "example.org/m/"
	long := strings.Repeat("// line\n", 30)
	const (
		wall  = "func f(i I, t T) { _ = time.Unix(1, 0); _, _ = t.UnixNano(), t.Unix(); _, _ = i.ModTime(), t.Round(0) }\n"
		argue = " is about the wall clock, which jumps: measure with a time.Time as time.Now returns it, or list the file with the reason"
	)
	for _, tt := range []struct {
		name  string
		files map[string]string // added to a sound tree
		rules func(*Rules)
		want  []string
	}{
		{name: "sound"},
		{
			name:  "arrow the table does not have",
			files: map[string]string{"base/b.go": source("base", m+"app")},
			want:  []string{"base/b.go: base may not import app"},
		},
		{
			name:  "arrow in a test file",
			files: map[string]string{"base/b_test.go": source("base_test", m+"base", m+"app")},
			want:  []string{"base/b_test.go: base may not import app"},
		},
		{
			name:  "arrow under a build constraint",
			files: map[string]string{"base/b.go": "//go:build never\n\n" + source("base", m+"app")},
			want:  []string{"base/b.go: base may not import app"},
		},
		{
			name:  "arrow to the root package",
			files: map[string]string{"base/b.go": source("base", "example.org/m")},
			want:  []string{"base/b.go: base may not import "},
		},
		{
			name:  "a module whose name begins like ours is not ours",
			files: map[string]string{"base/b.go": source("base", "example.org/more/app")},
		},
		{
			name:  "test tool in a test",
			files: map[string]string{"base/b_test.go": source("base", m+"lab")},
		},
		{
			name:  "test tool outside tests",
			files: map[string]string{"app/b.go": source("app", m+"lab")},
			want:  []string{"app/b.go: imports lab, which is for tests"},
		},
		{
			name:  "test tool in a test tool",
			files: map[string]string{"lab/l.go": source("lab", m+"rig"), "rig/r.go": source("rig")},
		},
		{
			name:  "package without a row",
			files: map[string]string{"new/n.go": source("new")},
			want:  []string{"new: not in the import table: decide what it may import and add a row"},
		},
		{
			name:  "what only tests may",
			files: map[string]string{"base/b.go": source("base", m+"base/sys")},
			want:  []string{"base/b.go: base may not import base/sys"},
		},
		{
			name: "permission that is not made use of",
			files: map[string]string{
				"app/a.go":       source("app", m+"base"),
				"app/a_test.go":  source("app_test", m+"base/sys"),
				"base/x_test.go": source("base"),
			},
			want: []string{
				"app: may import base/sys, but no file outside tests does: take it out of the table",
				"base: may import base/sys, but no test does: take it out of the table",
			},
		},
		{
			name:  "permission given twice",
			rules: func(r *Rules) { r.TestImports["app"] = []string{"base/sys"} },
			files: map[string]string{"app/a_test.go": source("app_test", m+"base/sys")},
			want:  []string{"app: its tests may import base/sys, but all its files may: take it out of TestImports"},
		},
		{
			name:  "row of a package that is gone",
			rules: func(r *Rules) { r.Imports["cellar"] = []string{"base"} },
			want:  []string{"cellar: in the import table, but there is no such package; if it will come, list it as planned"},
		},
		{
			name:  "permission to import what is gone",
			rules: func(r *Rules) { r.Imports["app"] = append(r.Imports["app"], "cellar") },
			want:  []string{"app: may import cellar, but no file outside tests does: take it out of the table"},
		},
		{
			name:  "planned, and there",
			files: map[string]string{"attic/a.go": source("attic", m+"base")},
			want:  []string{"attic: on the list of planned packages, but it exists"},
		},
		{
			name:  "planned without a row",
			rules: func(r *Rules) { r.Planned = append(r.Planned, "cellar") },
			want:  []string{"cellar: on the list of planned packages, but not in the import table"},
		},
		{
			name:  "fenced import",
			files: map[string]string{"base/b.go": source("base", "golang.org/x/sys/unix")},
			want:  []string{"base/b.go: imports golang.org/x/sys/unix; in base only base/sys may"},
		},
		{
			name: "fenced import where it may be: its owner, tests, beyond the fence",
			files: map[string]string{
				"base/sys/s.go":  source("sys", "golang.org/x/sys/unix"),
				"base/b_test.go": source("base", "golang.org/x/sys/unix"),
				"app/b.go":       source("app", "golang.org/x/sys/unix"),
			},
		},
		{
			name:  "folder name",
			files: map[string]string{"app/util/u.txt": ""},
			want:  []string{`app/util: a folder named "util" says nothing about what is in it`},
		},
		{
			name:  "long file",
			files: map[string]string{"app/b.go": source("app") + long},
			want:  []string{"app/b.go: 32 lines, 20 are allowed: split it, or list it with the reason"},
		},
		{
			name: "long files that may be: listed, generated, a test",
			files: map[string]string{
				"app/b.go":      source("app") + long,
				"app/c.go":      "// Code generated by hand. DO NOT EDIT.\n\n" + source("app") + long,
				"app/d_test.go": source("app") + long,
			},
			rules: func(r *Rules) { r.Long["app/b.go"] = "it is the life of a fixture" },
		},
		{
			name:  "long file listed without a reason",
			files: map[string]string{"app/b.go": source("app") + long},
			rules: func(r *Rules) { r.Long["app/b.go"] = " " },
			want:  []string{"app/b.go: on the list of long files without a reason"},
		},
		{
			name:  "stale rows in the list of long files",
			rules: func(r *Rules) { r.Long["app/a.go"], r.Long["app/gone.go"] = "was long", "was there" },
			want: []string{
				"app/a.go: on the list of long files, but it has only 4 lines",
				"app/gone.go: on the list of long files, but there is no such file",
			},
		},
		{
			name:  "the wall clock",
			files: map[string]string{"app/b.go": source("app", "time") + wall, "app/b_test.go": source("app") + wall},
			want: []string{
				"app/b.go: ModTime" + argue, "app/b.go: Round(0)" + argue, "app/b.go: Unix()" + argue,
				"app/b.go: UnixNano" + argue, "app/b.go: time.Unix" + argue,
			},
		},
		{
			name:  "the wall clock with a reason",
			files: map[string]string{"app/b.go": source("app", "time") + wall},
			rules: func(r *Rules) { r.Wall["app/b.go"] = "it is a clock" },
		},
		{
			name:  "what only looks like the wall clock",
			files: map[string]string{"app/b.go": source("app") + "func f(d D, x X) { x.Round(0.5); d.Round(1); _ = x.Unix; x.Unix(d); x.Addr.Unix = d }\n"},
		},
		{
			name:  "rows in the list of wall clock readers that are stale or say nothing",
			files: map[string]string{"app/b.go": source("app", "time") + wall},
			rules: func(r *Rules) {
				r.Wall["app/a.go"], r.Wall["app/b.go"], r.Wall["app/gone.go"] = "was one", "", "was there"
			},
			want: []string{
				"app/a.go: on the list of wall clock readers, but it is none",
				"app/b.go: on the list of wall clock readers without a reason",
				"app/gone.go: on the list of wall clock readers, but there is no such file",
			},
		},
		{
			name:  "no package comment",
			files: map[string]string{"base/base.go": "package base\n"},
			want:  []string{`base: no file has a package comment ("// Package base" ...)`},
		},
		{
			name:  "package comment detached from the clause",
			files: map[string]string{"base/base.go": "// Package base is a fixture.\n\npackage base\n"},
			want:  []string{`base: no file has a package comment ("// Package base" ...)`},
		},
		{
			name: "package comment of another name, or of a test only",
			files: map[string]string{
				"base/base.go":   "// Package case is a fixture.\npackage base\n",
				"base/b_test.go": source("base"),
			},
			want: []string{`base: no file has a package comment ("// Package base" ...)`},
		},
		{
			name:  "command comment in its own words",
			files: map[string]string{"app/main/m.go": "// App runs.\npackage main\n"},
			rules: func(r *Rules) { r.Imports["app/main"] = nil },
		},
		{
			name: "what the go command ignores",
			files: map[string]string{
				"testdata/util/x.go": source("x", m+"app"),
				".git/x.go":          "not Go",
				"_old/x.go":          source("x"),
				"vendor/v/x.go":      source("x"),
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := small()
			if tt.rules != nil {
				tt.rules(&rules)
			}
			tree := fstest.MapFS{
				"base/base.go":    {Data: []byte(source("base"))},
				"base/x_test.go":  {Data: []byte(source("base_test", m+"base", m+"base/sys"))},
				"base/sys/sys.go": {Data: []byte(source("sys"))},
				"app/a.go":        {Data: []byte(source("app", m+"base", m+"base/sys"))},
				"lab/lab.go":      {Data: []byte(source("lab"))},
				"rig/rig.go":      {Data: []byte(source("rig"))},
			}
			for name, src := range tt.files {
				tree[name] = &fstest.MapFile{Data: []byte(src)}
			}
			got, err := Check(tree, rules)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckUnparsable(t *testing.T) {
	tree := fstest.MapFS{"base/b.go": {Data: []byte("pakage base\n")}}
	if _, err := Check(tree, small()); err == nil {
		t.Error("a file that does not parse went unnoticed")
	}
}

func TestDownwards(t *testing.T) {
	rules := small()
	if got := rules.Downwards(); len(got) != 0 {
		t.Errorf("a sound table: %q", got)
	}
	rules.Floors = [][]string{{"app"}, {"base", "base/sys"}}
	rules.Imports["base"] = []string{"app"}
	want := []string{
		"base may import app, which is not below it",
		"base may import base/sys, which is not below it",
	}
	if diff := cmp.Diff(want, rules.Downwards()); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
