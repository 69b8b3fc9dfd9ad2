package arch

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	cited  = regexp.MustCompile(`\bO-[0-9]+`)
	listed = regexp.MustCompile(`(?m)^- \*\*(O-[0-9]+)\*\* `)
)

// Cases holds page, a list of cases, to the tree: what Go files and other documents
// cite is on it, each case once, and a test cites each. Findings are as those of Check.
func Cases(fsys fs.FS, page string) (findings []string, err error) {
	text, err := fs.ReadFile(fsys, page)
	if err != nil {
		return nil, err
	}
	tested := map[string]bool{} // of the cases on the page, whether a test cites them
	for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
		if _, twice := tested[m[1]]; twice {
			findings = append(findings, fmt.Sprintf("%s: %s is listed twice", page, m[1]))
		}
		tested[m[1]] = false
	}
	err = walk(fsys, func(name string, d fs.DirEntry) error {
		ext := path.Ext(name)
		if d.IsDir() || ext != ".go" && ext != ".md" || name == page {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		for _, c := range cited.FindAllString(string(text), -1) {
			if _, ok := tested[c]; !ok {
				findings = append(findings, fmt.Sprintf("%s: cites %s, which %s does not have", name, c, page))
			} else if strings.HasSuffix(name, "_test.go") {
				tested[c] = true
			}
		}
		return err
	})
	for c, ok := range tested {
		if !ok {
			findings = append(findings, fmt.Sprintf("%s: no test cites %s", page, c))
		}
	}
	slices.Sort(findings)
	return slices.Compact(findings), err
}
