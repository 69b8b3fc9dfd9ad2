package health

import (
	"strconv"
	"strings"
	"unicode"
)

// excerptBytes is how much of what a stranger said is quoted.
const excerptBytes = 60

// excerpt is the beginning of an answer in quotes, with everything escaped that
// does not print.
func excerpt(answer []byte) string {
	if len(answer) > excerptBytes {
		return strconv.QuoteToASCII(string(answer[:excerptBytes])) + "…"
	}
	return strconv.QuoteToASCII(string(answer))
}

// oneLine makes text that a stranger sent fit for a log: it is cut to a length,
// and blanks of all kinds and what does not print become single spaces.
func oneLine(text string) string {
	const most = 160
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar || r == ' ' })
	line := strings.Join(words, " ")
	if r := []rune(line); len(r) > most {
		line = string(r[:most]) + "…"
	}
	return line
}
