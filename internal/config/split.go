package config

import (
	"errors"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// stretch is how many entries of a block mapping the parser gets at a time. It
// recurses from each entry to the next and copies all that follow: 90 000 in one
// piece take minutes.
const stretch = 64

// spot is a line and a column.
type spot struct{ line, column int }

func spotOf(t *token.Token) spot { return spot{t.Position.Line, t.Position.Column} }

// piece is a part of a long block mapping: it belongs to the mapping that has the key.
type piece struct {
	of     spot
	tokens token.Tokens
}

// open is a block mapping while its entries go by.
type open struct {
	column  int
	first   spot
	entries int
	depth   int // of the pieces that were being filled when it began
}

// split takes out of tokens what is beyond the first entries of long block mappings.
// Each piece begins with a key, so that it is a mapping by itself. Keys in a form
// that is not told from tokens alone (an anchor before them, "? key") are counted
// with the entry before.
func split(tokens token.Tokens, stretch int) []piece {
	pieces := []piece{{}} // the first is what remains
	filling := []int{0}
	var mappings []open
	leave := func(beyond int) {
		for len(mappings) > 0 && mappings[len(mappings)-1].column > beyond {
			filling = filling[:mappings[len(mappings)-1].depth]
			mappings = mappings[:len(mappings)-1]
		}
	}
	flow := 0
	for i, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(flow-1, 0)
		case token.DocumentHeaderType, token.DocumentEndType:
			leave(0)
		case token.SequenceEntryType:
			if flow == 0 {
				leave(t.Position.Column)
			}
		default:
			if flow > 0 || !startsEntry(tokens, i) {
				break
			}
			leave(t.Position.Column)
			if len(mappings) == 0 || mappings[len(mappings)-1].column < t.Position.Column {
				mappings = append(mappings, open{t.Position.Column, spotOf(t), 0, len(filling)})
			}
			m := &mappings[len(mappings)-1]
			if m.entries > 0 && m.entries%stretch == 0 {
				filling = append(filling[:m.depth], len(pieces))
				pieces = append(pieces, piece{of: m.first})
			}
			m.entries++
		}
		p := &pieces[filling[len(filling)-1]]
		p.tokens = append(p.tokens, t)
	}
	return pieces
}

// startsEntry reports whether a token is the key with which an entry of a block
// mapping starts: the first on its line, or after a dash, and before a colon.
func startsEntry(tokens token.Tokens, i int) bool {
	if i+1 == len(tokens) || tokens[i+1].Type != token.MappingValueType || tokens[i+1].Position.Line != tokens[i].Position.Line {
		return false
	}
	switch tokens[i].Type {
	case token.MappingKeyType, token.MappingValueType, token.AnchorType, token.AliasType:
		return false
	}
	if i == 0 {
		return true
	}
	before := tokens[i-1]
	return before.Position.Line < tokens[i].Position.Line || before.Type == token.SequenceEntryType
}

// parsePieces parses the tokens of a file, long mappings in pieces: what is beyond
// their beginning goes to b.rest.
func (b *builder) parsePieces(tokens token.Tokens) (*ast.File, error) {
	pieces := split(tokens, b.stretch)
	whole, err := parser.Parse(pieces[0].tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, err
	}
	for _, p := range pieces[1:] {
		file, err := parser.Parse(p.tokens, 0, parser.AllowDuplicateMapKey())
		if err != nil {
			return nil, err
		}
		for _, doc := range file.Docs {
			n, ok := doc.Body.(ast.MapNode)
			if !ok {
				return nil, errors.New("not a mapping")
			}
			b.rest[p.of] = append(b.rest[p.of], n)
		}
	}
	return whole, nil
}

// entries visits the entries of a mapping, those of its other pieces too.
func (b *builder) entries(n ast.MapNode, visit func(key ast.MapKeyNode, value ast.Node)) {
	for all := []ast.MapNode{n}; len(all) > 0; all = all[1:] {
		for it := all[0].MapRange(); it.Next(); {
			if t := it.Key().GetToken(); t != nil && t.Position != nil {
				all = append(all, b.rest[spotOf(t)]...)
			}
			visit(it.Key(), it.Value())
		}
	}
}
