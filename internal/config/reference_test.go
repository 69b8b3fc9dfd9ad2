package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const referenceFile = "../../docs/config.md"

// cells is a row of a table of docs/config.md: key, type, default, meaning,
// example.
type cells [5]string

func readReference(t *testing.T) (text string, rows []cells) {
	t.Helper()
	b, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(parts) != len(cells{}) || !strings.HasPrefix(line, "| `") {
			continue
		}
		var c cells
		for i, p := range parts {
			c[i] = strings.TrimSpace(p)
		}
		rows = append(rows, c)
	}
	return string(b), rows
}

// printed is the type of a key with what belongs to it.
func printed(k key) string {
	switch {
	case k.bounds != nil:
		return k.typ + k.bounds()
	case len(k.words) == 1:
		return k.words[0]
	case k.words != nil:
		return k.typ + " " + strings.Join(k.words, ", ")
	}
	return k.typ
}

// TestReferenceListsEveryKey: docs/config.md has the keys of the tables in
// schema.go, with their types and defaults, and no others.
func TestReferenceListsEveryKey(t *testing.T) {
	t.Parallel()
	text, rows := readReference(t)
	var got, want, gotLater, wantLater []string
	for _, c := range rows {
		got = append(got, strings.Join(c[:3], " | "))
		if len(c[3]) < 8 {
			t.Errorf("%s: what does it mean?", c[0])
		}
	}
	for _, r := range catalogue() {
		switch {
		case r.later:
			wantLater = append(wantLater, r.path)
		case r.keys == nil:
			def := "`" + r.def + "`"
			if note, ok := strings.CutPrefix(r.def, "("); ok {
				def = strings.TrimSuffix(note, ")")
			}
			want = append(want, "`"+r.path+"` | "+printed(r.key)+" | "+def)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/config.md differs from the tables (-tables +docs):\n%s", diff)
	}
	_, section, ok := strings.Cut(text, "\n## Not supported yet\n")
	if !ok {
		t.Fatal("no section about what is not supported yet")
	}
	for _, m := range regexp.MustCompile("`((?:services|pools)\\.[^`]+)`").FindAllStringSubmatch(section, -1) {
		gotLater = append(gotLater, m[1])
	}
	slices.Sort(gotLater)
	slices.Sort(wantLater)
	if diff := cmp.Diff(wantLater, gotLater); diff != "" {
		t.Errorf("keys not supported yet (-tables +docs):\n%s", diff)
	}
}

// TestReferenceExamples: every example of a key is valid and gives that key.
func TestReferenceExamples(t *testing.T) {
	t.Parallel()
	_, rows := readReference(t)
	for _, c := range rows {
		path, example := strings.Trim(c[0], "`"), strings.Trim(c[4], "`")
		if last := path[strings.LastIndexByte(path, '.')+1:]; !strings.Contains(example, last+":") {
			t.Errorf("%s: the example %s is of something else", path, example)
		}
		const someService = `{listen: ["127.0.0.1:7000"], pool: pg}`
		const somePool = `{backends: [10.0.0.1:5432]}`
		var file string
		switch {
		case strings.HasPrefix(path, "services."):
			file = "defaults: {services: " + someService + "}\nservices: {web: {" + example + "}}\npools: {pg: " + somePool + ", dns: {backends: [10.0.0.1:53], check: {type: none}}}"
		case strings.HasPrefix(path, "pools.NAME.backends[]."):
			address := `address: "10.0.0.2:80", `
			if strings.Contains(example, "address:") {
				address = ""
			}
			file = "services: {}\npools: {pg: {backends: [{" + address + example + "}]}}"
		case strings.HasPrefix(path, "pools."):
			file = "services: {}\nruntime: {allow_exec: true}\ndefaults: {pools: " + somePool + "}\npools: {pg: {" + example + "}}"
		case path == "services":
			file = example
		default:
			file = "services: {}\n" + example
		}
		if _, err := Parse("example.yaml", []byte(file)); err != nil {
			t.Errorf("%s: example %s: %v", path, example, err)
		}
	}
}

// TestReferenceRules: the YAML blocks that are whole files are valid, and the
// errors that are shown are the ones that would be printed.
func TestReferenceRules(t *testing.T) {
	t.Parallel()
	text, _ := readReference(t)
	files := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(services:.*?)```").FindAllStringSubmatch(text, -1) {
		files++
		if _, err := Parse("example.yaml", []byte(m[1])); err != nil {
			t.Errorf("the example\n%s%v", m[1], err)
		}
	}
	if files < 7 {
		t.Errorf("found %d whole files only", files)
	}
	shown := regexp.MustCompile("(?m)^/etc/poise/poise.yaml:.*$").FindAllString(text, -1)
	if len(shown) != 2 {
		t.Fatalf("found %d lines of errors, want 2", len(shown))
	}
	_, err := Parse("/etc/poise/poise.yaml", []byte(`# The file that is wrong in
# the way docs/config.md shows.
services:
  web:
    listen: [":80"]
    pool: web
    timouts: {idle: 1m}
pools:
  web: {check: {timeout: 5}, backends: [10.0.0.1:80]}
`))
	if err == nil {
		t.Fatal("no error")
	}
	place := regexp.MustCompile(`:\d+:\d+: `)
	if got, want := place.ReplaceAllString(err.Error(), ": "), place.ReplaceAllString(strings.Join(shown, "\n"), ": "); got != want {
		t.Errorf("printed\n%s\nshown\n%s", got, want)
	}
}

// TestSamples: every file in configs is valid, and the packaged one has the
// defaults it claims to show.
func TestSamples(t *testing.T) {
	t.Setenv("POISE_PG_PASSWORD", "secret")
	var files []string
	for _, pattern := range []string{"../../configs/*.yaml", "../../configs/examples/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v files, error %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		if _, err := Load(file); err != nil {
			t.Error(err)
		}
	}
	packaged, err := Load("../../configs/poise.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Parse("empty.yaml", []byte("services: {}"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, packaged); diff != "" {
		t.Errorf("configs/poise.yaml is not the default configuration (-default +file):\n%s", diff)
	}
	text, err := os.ReadFile("../../configs/poise.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(text), "services: {}\n")
	after = strings.ReplaceAll("\n"+after, "\n#", "\n")
	if f, err := Parse("uncommented.yaml", []byte(before+"services:"+after)); err != nil || len(f.Services) != 1 || len(f.Pools) != 1 {
		t.Errorf("the example in configs/poise.yaml: %v", err)
	}
}
