package health

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"unicode/utf8"
)

// Pattern is what a check looks for in an answer, one of the two. Both are found
// wherever they are, and as soon as their last byte has arrived: what is found
// does not depend on how the answer was cut into packets.
type Pattern struct {
	Text  string // these bytes
	Hex   bool   // Text is written as hex digits; to the check it is the same
	Regex string // Go's syntax. "^" without flags is where the search begins; "$" is the end of the answer
}

// ParseRegex reports what is wrong with a Pattern's Regex. One that is found in
// nothing at all, such as "a*", is an error: it would be found in everything.
func ParseRegex(expr string) error {
	prog, err := compile(expr)
	if err != nil {
		return err
	}
	if m := newRegexMatcher(prog); m.end() == found {
		return fmt.Errorf("%q is found in an empty answer, and so in any", expr)
	}
	return nil
}

func compile(expr string) (*syntax.Prog, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return syntax.Compile(re.Simplify())
}

// String is the pattern as a message shows it.
func (p Pattern) String() string {
	if p.Regex != "" {
		return "/" + p.Regex + "/"
	}
	return strconv.Quote(p.Text)
}

// matcher starts a search. It panics if the regular expression is invalid, which
// ParseRegex tells before.
func (p Pattern) matcher() matcher {
	if p.Regex == "" {
		return newTextMatcher(p.Text)
	}
	prog, err := compile(p.Regex)
	if err != nil {
		panic("health: " + err.Error())
	}
	return newRegexMatcher(prog)
}

// matcher is one search in a stream. It is over with the first answer that is not
// open. The time it takes is linear in the stream, whatever comes in whatever
// pieces, for a stranger sends it.
type matcher interface {
	// feed looks at the next bytes of the stream. If the pattern is found n of them
	// belong to the match or come before it.
	feed(b []byte) (n int, f finding)
	// end says that there are no more.
	end() finding
	// begun reports whether the stream so far ends in the beginning of a match.
	begun() bool
}

// finding is the state of a search.
type finding uint8

const (
	open finding = iota
	found
	impossible // to be found, whatever comes
)

// textMatcher finds bytes (Knuth, Morris, Pratt: Fast pattern matching in
// strings, SIAM J. Comput. 6, 1977).
type textMatcher struct {
	text    string
	border  []int // of text[:i+1]: the length of the longest proper prefix that is a suffix too
	matched int   // this many bytes of text are the end of the stream
}

func newTextMatcher(text string) *textMatcher {
	m := &textMatcher{text: text, border: make([]int, len(text))}
	for i := 1; i < len(text); i++ {
		m.border[i] = m.extend(m.border[i-1], text[i])
	}
	return m
}

// extend returns how many bytes match when c follows n matched ones, n < len(text).
func (m *textMatcher) extend(n int, c byte) int {
	for n > 0 && m.text[n] != c {
		n = m.border[n-1]
	}
	if m.text[n] == c {
		n++
	}
	return n
}

func (m *textMatcher) feed(b []byte) (int, finding) {
	if m.text == "" {
		return 0, found
	}
	for i, c := range b {
		if m.matched = m.extend(m.matched, c); m.matched == len(m.text) {
			return i + 1, found
		}
	}
	return len(b), open
}

func (m *textMatcher) end() finding {
	if m.text == "" {
		return found
	}
	return impossible
}

func (m *textMatcher) begun() bool { return m.matched > 0 }

// regexMatcher follows all ways through a compiled regular expression at once, a
// rune at a time (Thompson: Regular expression search algorithm, CACM 11, 1968).
// The matchers of package regexp want the whole text, or hide how much of it they
// have read, and cannot say that no match is possible any more.
type regexMatcher struct {
	prog     *syntax.Prog
	anchored bool // it can begin only where the stream begins

	prev    rune     // -1 before the first
	threads []uint32 // where the ways are, after prev
	tail    []byte   // of the stream: an incomplete rune

	// For reuse.
	stack, runes []uint32
	visited      []bool
}

func newRegexMatcher(prog *syntax.Prog) *regexMatcher {
	return &regexMatcher{
		prog: prog, anchored: prog.StartCond()&syntax.EmptyBeginText != 0,
		prev: -1, visited: make([]bool, len(prog.Inst)),
	}
}

func (m *regexMatcher) feed(b []byte) (int, finding) {
	old := len(m.tail)
	rest := append(m.tail, b...)
	m.tail = nil
	for at := 0; at < len(rest); {
		if !utf8.FullRune(rest[at:]) {
			m.tail = append([]byte(nil), rest[at:]...)
			break
		}
		r, size := utf8.DecodeRune(rest[at:])
		at += size
		if f := m.step(r); f != open {
			return max(at-old, 0), f
		}
	}
	return len(b), open
}

func (m *regexMatcher) end() finding {
	for range m.tail { // a rune that stays incomplete is bad bytes
		if f := m.step(utf8.RuneError); f != open {
			return f
		}
	}
	m.tail = nil
	if m.follow(syntax.EmptyOpContext(m.prev, -1)) {
		return found
	}
	return impossible
}

func (m *regexMatcher) begun() bool { return len(m.threads) > 0 }

// lookBehind are the assertions that do not need the next rune.
const lookBehind = syntax.EmptyBeginLine | syntax.EmptyBeginText

// step takes the next rune. A match that began before it is looked for first with
// the assertions that r decides, then, after r, with those that r is enough for.
func (m *regexMatcher) step(r rune) finding {
	if m.follow(syntax.EmptyOpContext(m.prev, r)) {
		return found
	}
	m.threads = m.threads[:0]
	for _, pc := range m.runes {
		if inst := &m.prog.Inst[pc]; inst.MatchRune(r) {
			m.threads = append(m.threads, inst.Out)
		}
	}
	m.prev = r
	switch {
	case m.follow(syntax.EmptyOpContext(r, -1) & lookBehind):
		return found
	case m.anchored && len(m.threads) == 0:
		return impossible
	}
	return open
}

// follow walks from the threads, and from the start where a match may begin, over
// everything that takes no rune. It reports whether that reaches the end; if not
// m.runes is what takes one.
func (m *regexMatcher) follow(met syntax.EmptyOp) bool {
	clear(m.visited)
	m.runes = m.runes[:0]
	m.stack = append(m.stack[:0], m.threads...)
	if !m.anchored || m.prev < 0 {
		m.stack = append(m.stack, uint32(m.prog.Start))
	}
	for len(m.stack) > 0 {
		pc := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		if m.visited[pc] {
			continue
		}
		m.visited[pc] = true
		switch inst := &m.prog.Inst[pc]; inst.Op {
		case syntax.InstMatch:
			return true
		case syntax.InstAlt, syntax.InstAltMatch:
			m.stack = append(m.stack, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			m.stack = append(m.stack, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^met == 0 {
				m.stack = append(m.stack, inst.Out)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			m.runes = append(m.runes, pc)
		}
	}
	return false
}
