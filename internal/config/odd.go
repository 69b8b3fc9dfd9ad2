package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/token"
)

// This file tells of characters that word processors, web pages and chats put in place
// of those that are meant: invisible ones, and ones that look like another.

// oddBlank matches what looks like a blank, or like nothing, and is a letter to YAML.
var oddBlank = regexp.MustCompile(`[\x{a0}\x{ad}\x{1680}\x{180e}\x{2000}-\x{200f}\x{2028}-\x{202f}\x{205f}-\x{2069}\x{3000}\x{feff}]`)

// looks are the characters that look like those of the configuration, by the latter.
var looks = map[string]string{
	"-": "‐‑‒–—―−﹣－", `"`: "“”„‟″＂«»", "'": "‘’‚‛′＇", ":": "：﹕∶", ",": "，、", ".": "．。․", "/": "／∕⁄",
}

// oddity says what is odd about a text that is wrong, or "": the first character that is
// invisible or looks like another.
func oddity(text string) string {
	for _, r := range text {
		if r != '\t' && r <= unicode.MaxASCII {
			continue
		}
		switch meant := lookedLike(r); {
		case r == '\t':
			return "holds a tab (U+0009); write a blank, or nothing"
		case oddBlank.MatchString(string(r)):
			return fmt.Sprintf("holds %s, which looks like a blank or like nothing; write a plain blank, or nothing", charName(r))
		case meant == "'" || meant == `"`:
			return fmt.Sprintf("holds %s, which is no quote to YAML; write %s, or no quotes", charName(r), meant)
		case meant != "":
			return fmt.Sprintf("holds %s, which looks like %q and is another character; write %s", charName(r), meant, meant)
		}
	}
	return ""
}

// lookedLike is what a character looks like and is not, or "".
func lookedLike(r rune) string {
	for meant, odd := range looks {
		if strings.ContainsRune(odd, r) {
			return meant
		}
	}
	if r >= '！' && r <= '～' { // the wide forms of ASCII, U+FF01 to U+FF5E
		return string(r - '！' + '!')
	}
	return ""
}

// charName is a character as a message names it, and as it is if one can see it.
func charName(r rune) string {
	if unicode.IsGraphic(r) && !unicode.IsSpace(r) {
		return fmt.Sprintf("%U (%c)", r, r)
	}
	return fmt.Sprintf("%U", r)
}

// innerTab matches a tab within a line of plain text, which the parser leaves out: 4 and
// 0 with a tab between them would be 40.
var innerTab = regexp.MustCompile(`[^ \t\n][ \t]*\t[ \t]*[^ \t\n]`)

// oddly reports whether a plain text has an odd blank or a tab in it, and refuses it: in
// quotes it may be meant.
func (b *builder) oddly(t *token.Token, at position, path string) bool {
	if !strings.ContainsFunc(t.Origin, func(r rune) bool { return r == '\t' || r > unicode.MaxASCII }) {
		return false // as nearly all are
	}
	odd := oddBlank.FindString(t.Value)
	if odd == "" && innerTab.MatchString(t.Origin) {
		odd = "\t"
	}
	if odd != "" {
		b.add(at, path, "holds %U, which looks like a blank or like nothing and is none to YAML; write a plain blank, or put the text in quotes", []rune(odd)[0])
	}
	return odd != ""
}
