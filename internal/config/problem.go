package config

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing wrong with a configuration, at the place it is written.
// Lines and columns count from 1; columns count characters.
type Problem struct {
	File         string
	Line, Column int
	Key          string // "services.web.listen[0]"; "yaml" for what is wrong before there are keys
	Text         string // what is wrong, and what would be right

	order int // of the file among those read
}

// String returns "file:line:column: key.path: text", always one line.
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Key, p.Text)
}

// Problems is everything wrong with a configuration, in the order of the files
// and of the lines in them. As an error it means that the configuration was read
// and is invalid; any other error of Load means that it could not be read.
type Problems []Problem

// Error returns one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// source is one file.
type source struct {
	name  string // as messages print it
	order int    // main file first, then conf.d by name
}

// position is a place in a file. The zero value is the place of a default.
type position struct {
	*source
	line, column int
}

// String returns "file:line:column".
func (p position) String() string {
	return p.name + ":" + strconv.Itoa(p.line) + ":" + strconv.Itoa(p.column)
}

// maxProblems is how many problems are reported: a screen or two. Of a file that has
// more, most often the same is wrong everywhere, or it is another file that was meant.
const maxProblems = 100

// report collects problems while the configuration is read.
type report struct {
	problems  Problems            // the first by place, a few more than maxProblems
	seen      map[uint64]struct{} // hashes of all: what several pools inherit is wrong once
	catalogue []row               // every key, once one is unknown
	compared  int                 // words looked at for suggestions
	variables []Variable          // that the values hold, long ones
	origins   map[string]string   // how values with variables are written, by their path
}

var seed = maphash.MakeSeed()

// add records a problem with the key at a position; "" is the file as a whole.
func (r *report) add(at position, key, format string, args ...any) {
	if key == "" {
		key = "yaml"
	}
	if at.source == nil {
		at.source = &source{name: "default"}
	}
	p := Problem{
		File: at.name, Line: at.line, Column: at.column, order: at.order,
		Key: key, Text: fmt.Sprintf(format, args...),
	}
	hash := maphash.Comparable(seed, p)
	if _, again := r.seen[hash]; again {
		return
	}
	if r.seen == nil {
		r.seen = map[uint64]struct{}{}
	}
	r.seen[hash] = struct{}{}
	if r.problems = append(r.problems, p); len(r.problems) > 10*maxProblems {
		r.problems.sort()
		r.problems = r.problems[:maxProblems+1]
	}
}

// sort sorts by place.
func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(a.order-b.order, a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Key, b.Key))
	})
}

// err returns what was collected, sorted, or nil. Of too many problems the last says
// how many there are besides.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	r.problems.sort()
	if more := len(r.seen) - maxProblems; more > 1 {
		last := &r.problems[maxProblems]
		last.Key, last.Text = "yaml", fmt.Sprintf("%d more problems from here on; put those above right first", more)
		return r.problems[:maxProblems+1]
	}
	return r.problems
}

// quote shows a piece of the file in a message: on one line, and not too long.
func quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}

// oneOf lists words as "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
