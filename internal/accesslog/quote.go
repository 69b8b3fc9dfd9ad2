package accesslog

import (
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const hex = "0123456789ABCDEF"

// appendEscaped appends s with all but printable, non-space ASCII as #XX.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '#' {
			b = append(b, c)
		} else {
			b = append(b, '#', hex[c>>4], hex[c&15])
		}
	}
	return b
}

func appendQuoted(b []byte, s string) []byte {
	return append(appendUnquoted(append(b, '"'), s), '"')
}

// appendCut is appendQuoted of at most so many bytes of s, and an ellipsis if that
// is not all.
func appendCut(b []byte, s string, most int) []byte {
	if len(s) <= most {
		return appendQuoted(b, s)
	}
	for range utf8.UTFMax - 1 { // not within a character, if it is made of any
		if utf8.RuneStart(s[most]) {
			break
		}
		most--
	}
	b = appendUnquoted(append(b, '"'), s[:most])
	return append(b, `…"`...)
}

// appendUnquoted appends s as the inside of a JSON string (RFC 8259 section 7).
// What does not print is escaped though JSON would not need it, for lines end up on
// terminals: control characters of both sets, marks that turn the direction of text.
// What is not UTF-8 becomes U+FFFD.
func appendUnquoted(b []byte, s string) []byte {
	for _, r := range s { // ranging over what is not UTF-8 yields U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r < 0x7f || r > 0x7f && unicode.IsPrint(r) || r == utf8.RuneError:
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = appendHex(appendHex(b, high), low)
		default:
			b = appendHex(b, r)
		}
	}
	return b
}

func appendHex(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
