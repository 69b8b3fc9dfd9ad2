package config

import (
	"fmt"
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

// report collects problems while the configuration is read.
type report struct {
	problems  Problems
	catalogue []row // every key, once one is unknown
}

// add records a problem with the key at a position; "" is the file as a whole.
func (r *report) add(at position, key, format string, args ...any) {
	if key == "" {
		key = "yaml"
	}
	if at.source == nil {
		at.source = &source{name: "default"}
	}
	r.problems = append(r.problems, Problem{
		File: at.name, Line: at.line, Column: at.column, order: at.order,
		Key: key, Text: fmt.Sprintf(format, args...),
	})
}

// err returns what was collected, sorted, or nil.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		for _, d := range [...]int{a.order - b.order, a.Line - b.Line, a.Column - b.Column} {
			if d != 0 {
				return d
			}
		}
		return strings.Compare(a.Key, b.Key)
	})
	return slices.Compact(r.problems) // what several pools inherit is wrong once
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
