// Package arch turns the house rules of docs/architecture.md into a test: which
// package may import which, where raw system calls live, how long a file may
// get, that every package says what it is. A rule that is not executable is
// forgotten within a year.
//
// Only its own test uses it. It reads source files and nothing else: no build,
// no module cache, and so no file escapes it because of a build constraint.
package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Rules is what Check holds a source tree to. Packages are named by their
// folder, relative to the module's root.
type Rules struct {
	Module string // import path of the root

	// Imports lists, for every package, what it may import of the module. The table has
	// to be exact to mean anything: a package without a row is a finding, and so is
	// permission that no file makes use of.
	Imports map[string][]string
	// TestImports lists what only the package's tests may import in addition.
	TestImports map[string][]string
	// Tests may be imported by every package's tests and by each other, and by
	// nothing else.
	Tests []string
	// Planned packages do not exist yet. What they may import, and who may import
	// them, is in the table before the first file is there to argue with.
	Planned []string

	Floors [][]string // top to bottom; see Rules.Downwards

	// Fenced says of an import path (and all below it) which packages may use it
	// outside tests, and where that holds: nowhere else is it looked at.
	Fenced []Fence

	// Wall lists the files that may take a time of the wall clock apart, each with
	// the reason. The wall clock jumps: what compares its times with now waits for
	// hours, or does not wait.
	Wall map[string]string

	FolderNames []string // no folder may have one of these names

	MaxLines int               // of a file that is neither a test nor generated
	Long     map[string]string // files that may be longer, each with the reason
}

// A Fence keeps an import to a few packages of a part of the tree.
type Fence struct {
	Import string   // import path, prefix of a path
	Within string   // the rule holds in this folder and below
	Only   []string // these may
}

// file is one parsed Go source file.
type file struct {
	path    string // from the module's root
	dir     string
	test    bool
	lines   int
	doc     bool // has a package comment
	main    bool // package main
	machine bool // generated
	imports []string
	wall    []string // what it does with times of the wall clock
}

// Check reads every Go file of fsys, the root of the module, and returns what
// breaks the rules, sorted, as "path: what is wrong". The error is about reading
// or parsing.
func Check(fsys fs.FS, r Rules) (findings []string, err error) {
	files, folders, err := read(fsys)
	if err != nil {
		return nil, err
	}
	report := func(where, format string, args ...any) {
		findings = append(findings, where+": "+fmt.Sprintf(format, args...))
	}
	for _, dir := range folders {
		if slices.Contains(r.FolderNames, path.Base(dir)) {
			report(dir, "a folder named %q says nothing about what is in it", path.Base(dir))
		}
	}
	documented := map[string]bool{}
	for _, f := range files {
		if _, known := documented[f.dir]; !known || (f.doc && !f.test) {
			documented[f.dir] = f.doc && !f.test
		}
		r.checkImports(f, report)
		r.checkLength(f, report)
		r.checkWall(f, report)
	}
	for dir, ok := range documented {
		if !ok {
			report(dir, "no file has a package comment (%q ...)", "// Package "+path.Base(dir))
		}
		if _, ok := r.Imports[dir]; !ok {
			report(dir, "not in the import table: decide what it may import and add a row")
		}
	}
	r.checkTable(files, report)
	for name := range r.Long {
		if !slices.ContainsFunc(files, func(f file) bool { return f.path == name }) {
			report(name, "on the list of long files, but there is no such file")
		}
	}
	for name := range r.Wall {
		if !slices.ContainsFunc(files, func(f file) bool { return f.path == name }) {
			report(name, "on the list of wall clock readers, but there is no such file")
		}
	}
	slices.Sort(findings)
	return slices.Compact(findings), nil
}

func (r Rules) checkImports(f file, report func(where, format string, args ...any)) {
	for _, imp := range f.imports {
		for _, fence := range r.Fenced {
			if !f.test && within(f.dir, fence.Within) && within(imp, fence.Import) && !slices.Contains(fence.Only, f.dir) {
				report(f.path, "imports %s; in %s only %s may", imp, fence.Within, strings.Join(fence.Only, ", "))
			}
		}
		to, ours := r.ours(imp)
		if !ours || to == f.dir { // an external test imports what it tests
			continue
		}
		if slices.Contains(r.Tests, to) {
			if !f.test && !slices.Contains(r.Tests, f.dir) {
				report(f.path, "imports %s, which is for tests", to)
			}
			continue
		}
		allowed, known := r.Imports[f.dir]
		if known && !slices.Contains(allowed, to) && !(f.test && slices.Contains(r.TestImports[f.dir], to)) {
			report(f.path, "%s may not import %s", f.dir, to)
		}
	}
}

// ours returns the folder of an imported package, and whether it is of the module.
func (r Rules) ours(imp string) (dir string, ours bool) {
	return strings.TrimPrefix(strings.TrimPrefix(imp, r.Module), "/"), within(imp, r.Module)
}

func (r Rules) checkLength(f file, report func(where, format string, args ...any)) {
	if f.test || f.machine {
		return
	}
	reason, listed := r.Long[f.path]
	switch long := f.lines > r.MaxLines; {
	case long && !listed:
		report(f.path, "%d lines, %d are allowed: split it, or list it with the reason", f.lines, r.MaxLines)
	case !long && listed:
		report(f.path, "on the list of long files, but it has only %d lines", f.lines)
	case listed && strings.TrimSpace(reason) == "":
		report(f.path, "on the list of long files without a reason")
	}
}

// Downwards returns the rows of the import table that lead upwards, or sideways
// between the packages of one floor. Packages on no floor stand beside the house
// and are not looked at.
func (r Rules) Downwards() (findings []string) {
	floor := map[string]int{}
	for i, packages := range r.Floors {
		for _, p := range packages {
			floor[p] = i
		}
	}
	for _, from := range slices.Sorted(maps.Keys(r.Imports)) {
		for to := range floor {
			above, ok := floor[from]
			allowed := slices.Contains(r.Imports[from], to) || slices.Contains(r.TestImports[from], to)
			if ok && allowed && from != to && floor[to] <= above {
				findings = append(findings, fmt.Sprintf("%s may import %s, which is not below it", from, to))
			}
		}
	}
	slices.Sort(findings)
	return findings
}

// walk calls f for all files and folders but those the go command ignores, too: folders
// named testdata or vendor, or beginning with a dot or an underscore.
func walk(fsys fs.FS, f func(name string, d fs.DirEntry) error) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")):
			return fs.SkipDir
		}
		return f(name, d)
	})
}

// read parses all Go files.
func read(fsys fs.FS) (files []file, folders []string, err error) {
	err = walk(fsys, func(name string, d fs.DirEntry) error {
		switch {
		case d.IsDir():
			folders = append(folders, name)
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parse(fsys, name)
		files = append(files, f)
		return err
	})
	return files, folders, err
}

func parse(fsys fs.FS, name string) (file, error) {
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return file{}, err
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{
		path:    name,
		dir:     path.Dir(name),
		test:    strings.HasSuffix(name, "_test.go"),
		lines:   bytes.Count(src, []byte("\n")),
		main:    syntax.Name.Name == "main",
		machine: ast.IsGenerated(syntax),
	}
	if doc := strings.TrimSpace(syntax.Doc.Text()); doc != "" {
		// godoc's form; a command is introduced by its own name.
		f.doc = f.main || strings.HasPrefix(doc, "Package "+syntax.Name.Name+" ")
	}
	for _, spec := range syntax.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, imp)
	}
	f.wall = wallClock(syntax)
	return f, nil
}

// within reports whether p is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir+"/")
}
