package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a file, so that a wrong path (a device, a log) is refused
// rather than read for ever.
const maxFile = 4 << 20

// parse returns the body of the only document in data, nil if it is empty. The parser recurses and is not ours, so what could exhaust its stack
// is refused before and a panic is caught.
func (b *builder) parse(data []byte) (body ast.Node, ok bool) {
	if !b.text(data) {
		return nil, false
	}
	defer func() {
		if r := recover(); r != nil {
			b.syntax(fmt.Errorf("%v", r), data)
			body, ok = nil, false
		}
	}()
	tokens := joinAddresses(lexer.Tokenize(string(data)))
	if !b.shallow(tokens) {
		return nil, false
	}
	file, err := b.parsePieces(tokens)
	if err != nil {
		b.syntax(err, data)
		return nil, false
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case doc.Body.Type() == ast.DirectiveType:
			b.add(b.position(doc.Body.GetToken()), "", "a YAML directive is not used here; remove the line")
			return nil, false
		case body != nil:
			b.add(b.position(doc.Start), "", "a second document starts here; keep one, and put what else there is into conf.d")
			return nil, false
		default:
			body = doc.Body
		}
	}
	return body, true
}

// hints are what often lies behind a refusal of the parser, by the line's looks.
var hints = []struct {
	line *regexp.Regexp
	hint string
}{
	{regexp.MustCompile(`[-:,\[]\s*\[[0-9A-Fa-f:.]+\]:`), `an IPv6 address goes in quotes, "[::1]:80"`},
	{regexp.MustCompile(`[{\[,].*\$\{`), `between brackets a variable goes in quotes, "${NAME}"`},
	{regexp.MustCompile(`:\s*[*@%&!]`), "a value that starts with a special character goes in quotes"},
}

// syntax reports what the parser refused.
func (b *builder) syntax(err error, data []byte) {
	at, text, hint := position{b.src, 1, 1}, err.Error(), "look at this line and the one before it"
	var ye yaml.Error
	if errors.As(err, &ye) {
		at, text = b.position(ye.GetToken()), strings.ReplaceAll(ye.GetMessage(), "\t", "tab")
	}
	lines := bytes.Split(data, []byte("\n"))
	for _, h := range hints {
		if at.line <= len(lines) && h.line.Match(lines[at.line-1]) {
			hint = h.hint
			break
		}
	}
	if at.line <= len(lines) {
		line, _, _ := strings.Cut(string(lines[at.line-1]), " #") // comments may hold what they like
		if odd := oddity(strings.TrimLeft(line, "\t")); odd != "" {
			hint = "the line " + odd
		}
	}
	b.add(at, "", "not valid YAML from here: %s; %s", text, hint)
}

// text refuses what is not plain text, and tabs where YAML counts blanks.
func (b *builder) text(data []byte) bool {
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(data, []byte(mark)) {
			b.add(position{b.src, 1, 1}, "", "the file starts with a byte order mark; save it as UTF-8 without one")
			return false
		}
	}
	line, column, indent := 1, 1, true
	for i := 0; i < len(data); column++ {
		r, size := utf8.DecodeRune(data[i:])
		at := position{b.src, line, column}
		switch {
		case r == '\n':
			line, column, indent = line+1, 0, true
		case r == utf8.RuneError && size == 1:
			b.add(at, "", "byte 0x%02x is not UTF-8; save the file as UTF-8", data[i])
			return false
		case r == '\t' && indent:
			b.add(at, "", "a tab in the indentation; indent with blanks")
			return false
		case unicode.IsControl(r) && r != '\t' && (r != '\r' || !bytes.HasPrefix(data[i:], []byte("\r\n"))):
			b.add(at, "", "control character %U; remove it", r)
			return false
		}
		indent = indent && (r == ' ' || r == '\n')
		i += size
	}
	return true
}

// joinAddresses makes 10.0.0.1:80 one text again where the lexer takes it for a
// key and a value: in a list in brackets within a mapping in braces. By YAML 1.2,
// section 7.3.3, a colon is part of a plain scalar unless a blank follows.
func joinAddresses(tokens token.Tokens) token.Tokens {
	var out token.Tokens
	var open []token.Type
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open = append(open, t.Type)
		case token.SequenceEndType, token.MappingEndType:
			open = open[:max(len(open)-1, 0)]
		case token.MappingValueType:
			if len(open) == 0 || open[len(open)-1] != token.SequenceStartType || i+1 == len(tokens) {
				break
			}
			host, port := t, tokens[i+1] // ":80" has no host
			text := ":" + port.Value
			if last := out[len(out)-1]; adjacent(last, t) {
				host, text = last, last.Value+text
				out = out[:len(out)-1]
			} else if last.Type != token.SequenceStartType && last.Type != token.CollectEntryType {
				break
			}
			if adjacent(t, port) {
				t = token.String(text, text, host.Position)
				i++
			} else if host != t {
				out.Add(host)
			}
		}
		out.Add(t)
	}
	return out
}

// adjacent reports whether b starts where a ends, both being plain scalars or a
// colon.
func adjacent(a, b *token.Token) bool {
	for _, t := range []*token.Token{a, b} {
		switch t.Type {
		case token.StringType, token.IntegerType, token.FloatType, token.BoolType, token.NullType, token.MappingValueType:
		default:
			return false
		}
	}
	return a.Position.Line == b.Position.Line && a.Position.Column+utf8.RuneCountInString(a.Value) == b.Position.Column
}

const (
	maxFlow   = 32  // brackets within brackets
	maxOpen   = 32  // nested entries begun on one line, or between two commas
	maxColumn = 256 // of a nested entry, hence of the indentation

	// maxKeys bounds the keys of a file.
	maxKeys = 100_000
	// maxQuestions bounds those in the form "? key", of which it copies all that follow.
	maxQuestions = 1000
)

// shallow refuses nesting far beyond what any key needs, judged by tokens alone,
// and tags, which no key uses.
func (b *builder) shallow(tokens token.Tokens) bool {
	flow, open, line, keys, questions := 0, 0, 0, 0, 0
	for i, t := range tokens {
		switch t.Type {
		case token.TagType:
			b.add(b.position(t), "", "a YAML tag (%s) is not used here; remove it", quote(t.Value))
			return false
		case token.AnchorType:
			// An anchor is two tokens, the sign and the name.
			if i >= 2 && tokens[i-2].Type == token.AnchorType {
				b.add(b.position(t), "", "a second anchor for one value; keep one")
				return false
			}
		case token.SequenceStartType, token.MappingStartType:
			flow, open = flow+1, 0
		case token.SequenceEndType, token.MappingEndType:
			flow, open = max(flow-1, 0), 0
		case token.CollectEntryType:
			open = 0
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			switch t.Type {
			case token.MappingValueType:
				keys++
			case token.MappingKeyType:
				questions++
			}
			if at := t.Position.Line; flow == 0 && at != line {
				line, open = at, 0
			}
			open++
			if flow == 0 && t.Position.Column > maxColumn {
				open = maxOpen + 1
			}
		}
		if keys > maxKeys {
			b.add(b.position(t), "", "more than %d keys in one file; spread them over conf.d", maxKeys)
			return false
		}
		if questions > maxQuestions {
			b.add(b.position(t), "", `more than %d keys in the form "? key"; write key: value`, maxQuestions)
			return false
		}
		if flow > maxFlow || open > maxOpen {
			b.add(b.position(t), "", "nested too deeply; no key needs more than ten levels")
			return false
		}
	}
	return true
}
