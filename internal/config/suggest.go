package config

import (
	"slices"
	"strings"
)

// suggestKey finds the key that was probably meant by an unknown one: here,
// elsewhere in the object, or elsewhere at all. Meant is set if it is one of here.
func (r *report) suggestKey(got string, here, all []key) (meant, hint string) {
	var names, now []string
	for _, k := range here {
		names = append(names, k.name)
		if !k.later {
			now = append(now, k.name)
		}
	}
	if got == "interface" && slices.Contains(names, "listen") {
		return "", `a service listens on addresses: write that of the interface, such as listen: ["10.0.0.1:5432"]`
	}
	if meant = r.nearest(got, names); meant != "" {
		for _, k := range here {
			if k.name == meant && k.form != "" {
				return meant, k.meant()
			}
		}
		return meant, `did you mean "` + meant + `"?`
	}
	for _, k := range here {
		if slices.ContainsFunc(k.items, func(item key) bool { return Nearest(got, []string{item.name}) != "" }) {
			return "", k.meant()
		}
	}
	others := "the keys here are " + strings.Join(now, ", ")
	if r.compared > maxCompared {
		return "", others
	}
	var below, beside []string
	walk(all, "", func(path string, _ key) { below = append(below, path) })
	if r.catalogue == nil {
		r.catalogue = catalogue()
	}
	for _, row := range r.catalogue {
		beside = append(beside, row.path)
	}
	for _, like := range []func(string) bool{
		func(last string) bool { return last == got },
		func(last string) bool { return r.nearest(got, []string{last}) != "" },
	} {
		for _, paths := range [][]string{below, beside} {
			for _, path := range paths {
				if like(path[strings.LastIndexByte(path, '.')+1:]) {
					return "", `did you mean "` + path + `"?`
				}
			}
		}
	}
	return "", others
}

// maxCompared bounds the words that are looked at for what may be meant. It does for
// many more problems than are reported, unless thousands of names come into question.
const maxCompared = 1_000_000

// nearest is Nearest as long as a report does not ask too often.
func (r *report) nearest(got string, words []string) string {
	if r.compared += len(words); r.compared > maxCompared {
		return ""
	}
	return Nearest(got, words)
}

// meant is the hint at a list of mappings.
func (k key) meant() string { return "did you mean " + k.name + ": " + k.form + "?" }

// walk visits every key of a table with its path, sections and the keys of items
// too.
func walk(keys []key, path string, visit func(path string, k key)) {
	for _, k := range keys {
		p := join(path, k.name)
		visit(p, k)
		walk(k.keys, p, visit)
		walk(k.items, p+"[]", visit)
	}
}

// Nearest returns the word that got is most likely a misspelling or an
// abbreviation of, or "". A third of the letters may be wrong.
func Nearest(got string, words []string) string {
	best, at := "", max(len(got)/3, 1)+1
	if len(got) >= 3 {
		for _, w := range words {
			if strings.HasPrefix(w, got) {
				return w
			}
		}
	}
	for _, w := range words {
		if len(w)-len(got) >= at || len(got)-len(w) >= at {
			continue // so many letters more or less
		}
		if d := distance(got, w); d < at && d < len(w) {
			best, at = w, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours between two words (optimal string alignment). Long input is not
// compared: it is no misspelling.
func distance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	var rows [3][most + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
