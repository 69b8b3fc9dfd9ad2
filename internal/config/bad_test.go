package config_test

import (
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/internal/config"
)

var update = flag.Bool("update", false, "write the .want files of testdata anew")

// golden compares got with a file, or writes the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update accepts):\n%s", file, diff)
	}
}

// badFiles is one file, or folder with a conf.d, for each rule.
func badFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob("testdata/bad/*/poise.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return append(files, folders...)
}

// wantFile is where the message about a bad file is kept.
func wantFile(file string) string { return strings.TrimSuffix(file, ".yaml") + ".want" }

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for _, file := range badFiles(t) {
		t.Run(strings.TrimPrefix(file, "testdata/bad/"), func(t *testing.T) {
			f, err := config.Load(file)
			if f != nil {
				t.Errorf("a file was returned beside the error")
			}
			var problems config.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error is %v, want Problems", err)
			}
			golden(t, wantFile(file), err.Error()+"\n")
		})
	}
}

// oneProblem is the form every message has.
var oneProblem = regexp.MustCompile(`^testdata/bad/[^:]+:[1-9][0-9]*:[1-9][0-9]*: ([^ "]|"[^"]*")+: .+; .+$`)

// TestMessagesSayWhatWouldBeRight checks the form of the messages: place, key,
// what is wrong, and after a semicolon what would be right.
func TestMessagesSayWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for _, file := range badFiles(t) {
		for line := range strings.Lines(wants(t, file)) {
			line = strings.TrimSuffix(line, "\n")
			if !oneProblem.MatchString(line) && !strings.Contains(line, "must be") {
				t.Errorf("not of the form file:line:column: key: wrong; right:\n%s", line)
			}
		}
	}
}

func wants(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(wantFile(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEveryRuleHasABadFile finds every message in the sources and looks for one
// that was printed from it.
func TestEveryRuleHasABadFile(t *testing.T) {
	t.Parallel()
	var printed strings.Builder
	for _, file := range badFiles(t) {
		printed.WriteString(wants(t, file))
	}
	exempt := map[string]string{
		"the file holds more than %d values, those repeated by aliases included; write fewer":                                               "TestBillionLaughs",
		"more than %d keys in one file; spread them over conf.d":                                                                            "TestTooManyKeys",
		"%d more problems from here on; put those above right first":                                                                        "TestMoreProblems",
		"%d %s inherit more than %d values together; give long lists to those alone that need them":                                         "TestTooMuchInherited",
		`more than %d keys in the form "? key"; write key: value`:                                                                           "TestQuestions",
		"what is in %s is not valid here; look at what the variable holds":                                                                  "TestVariablesAreNotTold",
		"the file is larger than %d MiB; is it the right one?":                                                                              "TestLoadTooLarge",
		"the file lists no backend; write one a line, or [] for none":                                                                       "TestParseBackends",
		"%s is a name; write the IP address, or move it to the key backends":                                                                "TestParseBackends",
		"what the pool's check asks cannot be asked of the socket %s; move it to a pool of its own":                                         "TestParseBackends",
		"the socket %s cannot be in a pool for UDP, with source: client, or with tls that has no server_name; move it to a pool of its own": "TestParseBackends",
		"%s is no setting; write name=NAME, weight=N, max_connections=N or backup":                                                          "TestParseBackends",
		"%s is given twice; keep one of them":                                                                                               "TestParseBackends",
		"this YAML form is not used here; write a plain value, a list or a mapping":                                                         "for what the parser may come to know",
	}
	for _, format := range messages(t) {
		if _, ok := exempt[format]; ok {
			continue
		}
		re := regexp.QuoteMeta(format)
		re = regexp.MustCompile(`%(02)?[a-zA-Z]`).ReplaceAllString(re, `.*`)
		if !regexp.MustCompile(`(?m)` + strings.ReplaceAll(re, "%%", "%")).MatchString(printed.String()) {
			t.Errorf("no file in testdata/bad leads to %q", format)
		}
	}
}

// messages returns the format of every message in the package's sources.
func messages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var formats []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fn, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"fail", "add", "problem", "Sprintf"}, fn.Sel.Name) {
				return true
			}
			for _, arg := range call.Args {
				lit, ok := arg.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				if s, err := strconv.Unquote(lit.Value); err == nil && strings.ContainsAny(s, ";") {
					formats = append(formats, s)
				}
			}
			return true
		})
	}
	if len(formats) < 50 {
		t.Fatalf("found %d messages only: how they are written has changed", len(formats))
	}
	return formats
}
