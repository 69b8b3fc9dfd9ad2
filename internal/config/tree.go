package config

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// kind is what a node is in YAML's terms. There is one kind of plain scalar:
// the key a scalar belongs to, not its looks, decides how it is read.
type kind uint8

const (
	null kind = iota
	plain
	quoted
	mapping
	list
)

// String names the kind in messages.
func (k kind) String() string {
	return [...]string{"nothing", "a single value", "text in quotes", "a mapping", "a list"}[k]
}

// node is one value of the file, with its place. Nodes are shared by YAML
// aliases and are never changed after they are built.
type node struct {
	at       position
	kind     kind
	text     string   // of a scalar, after expansion
	written  string   // what the text was before it
	expanded bool     // the text came, in part, from the environment
	held     []string // what the variables in it hold
	missing  bool     // what it refers to does not exist, which has been reported
	odd      bool     // the text holds an odd blank, which has been reported
	pairs    []pair   // of a mapping, no key twice
	items    []*node
	size     int // nodes below, itself included
}

// count returns the values below a node, itself included, those of aliases each time.
func (n *node) count() int {
	total := 1
	for _, p := range n.pairs {
		total += p.value.count()
	}
	for _, item := range n.items {
		total += item.count()
	}
	return total
}

// pair is one entry of a mapping.
type pair struct {
	key   string
	at    position // of the key
	value *node
}

// maxNodes bounds a file's values, those repeated by aliases counted each time.
// It is some 80 000 backends, and what a "billion laughs" file runs into.
const maxNodes = 500_000

// builder turns one syntax tree into nodes.
type builder struct {
	*report
	src     *source
	env     func(string) (string, bool)
	anchors map[string]*node
	rest    map[spot][]ast.MapNode // the later pieces of long mappings, by a key of the first
	stretch int                    // entries a piece
	size    int
	full    bool // maxNodes reached and reported
}

// build reads one file's text. The node is nil for a file without content; ok is
// false if the text could not be understood, which has been reported.
func build(r *report, src *source, data []byte, env func(string) (string, bool)) (n *node, ok bool) {
	b := &builder{report: r, src: src, env: env, anchors: map[string]*node{}, rest: map[spot][]ast.MapNode{}, stretch: stretch}
	return b.build(data)
}

func (b *builder) build(data []byte) (n *node, ok bool) {
	body, ok := b.parse(data)
	if body == nil || !ok {
		return nil, ok
	}
	n = b.node(body, "")
	return n, !b.full
}

func (b *builder) position(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{b.src, 1, 1}
	}
	return position{b.src, max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// node converts one value. The path is for messages.
func (b *builder) node(n ast.Node, path string) *node {
	if n == nil {
		return &node{at: position{b.src, 1, 1}, size: 1}
	}
	out := &node{at: b.position(n.GetToken()), size: 1}
	before := b.size
	if b.size++; b.size > maxNodes {
		b.tooMuch(out.at)
	}
	if b.full {
		return out
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		out.kind = plain
		if t := n.GetToken().Type; t == token.SingleQuoteType || t == token.DoubleQuoteType {
			out.kind = quoted
		} else {
			out.odd = b.oddly(n.GetToken(), out.at, path)
		}
		b.expand(out, path, n.Value)
	case *ast.LiteralNode:
		out.kind = quoted
		b.expand(out, path, n.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text, out.odd = plain, n.GetToken().Value, b.oddly(n.GetToken(), out.at, path)
	case ast.MapNode:
		out.kind = mapping
		b.mapping(out, n, path)
	case *ast.SequenceNode:
		out.kind = list
		for i, item := range n.Values {
			out.items = append(out.items, b.node(item, index(path, i)))
		}
	case *ast.AnchorNode:
		out = b.node(n.Value, path)
		b.anchors[n.Name.GetToken().Value] = out
		return out
	case *ast.AliasNode:
		return b.alias(out, n.Value.GetToken().Value, path)
	default:
		b.add(out.at, path, "this YAML form is not used here; write a plain value, a list or a mapping")
	}
	out.size = b.size - before
	return out
}

// alias returns the node an alias stands for. It counts as if it were written
// out, because reading it takes as long.
func (b *builder) alias(at *node, name, path string) *node {
	target, ok := b.anchors[name]
	if !ok {
		b.add(at.at, path, "no anchor &%s above this alias; define it first, outside of itself", name)
		at.missing = true
		return at
	}
	if b.size += target.size; b.size > maxNodes {
		b.tooMuch(at.at)
	}
	return target
}

func (b *builder) tooMuch(at position) {
	if !b.full {
		b.full = true
		b.add(at, "", "the file holds more than %d values, those repeated by aliases included; write fewer", maxNodes)
	}
}

// mapping fills a mapping node. The value of a merge key "<<" supplies the keys
// that the mapping itself does not give.
func (b *builder) mapping(out *node, n ast.MapNode, path string) {
	var merged []*node
	seen := map[string]position{}
	b.entries(n, func(key ast.MapKeyNode, value ast.Node) {
		if key.IsMergeKey() {
			merged = append(merged, b.merged(value, path)...)
			return
		}
		p, ok := b.key(key, path)
		if !ok {
			b.node(value, path) // for the anchors in it
			return
		}
		if len(out.pairs) == 0 && out.at.column > p.at.column {
			out.at = p.at // of a block mapping the parser gives the first colon
		}
		p.value = b.node(value, join(path, word(p.key)))
		if first, dup := seen[p.key]; dup {
			b.add(p.at, join(path, word(p.key)), "given twice; it is already at %s, keep one of them", first)
			return
		}
		seen[p.key] = p.at
		out.pairs = append(out.pairs, p)
	})
	for _, m := range merged {
		for _, p := range m.pairs {
			if _, given := seen[p.key]; !given {
				seen[p.key] = p.at
				out.pairs = append(out.pairs, p)
			}
		}
	}
}

// key reads the key of a mapping entry, which must be a word.
func (b *builder) key(n ast.MapKeyNode, path string) (pair, bool) {
	if k, ok := n.(*ast.MappingKeyNode); ok { // "? key"
		if inner, ok := k.Value.(ast.MapKeyNode); ok {
			n = inner
		}
	}
	at := b.position(n.GetToken())
	switch n := n.(type) {
	case *ast.StringNode:
		if t := n.GetToken().Type; t != token.SingleQuoteType && t != token.DoubleQuoteType {
			if b.oddly(n.GetToken(), at, path) {
				return pair{}, false
			}
		}
		return pair{key: n.Value, at: at}, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return pair{key: n.GetToken().Value, at: at}, true
	}
	b.add(at, path, "a key must be a plain word")
	return pair{}, false
}

// merged returns the mappings a merge key brings in: one, or a list of them.
func (b *builder) merged(value ast.Node, path string) []*node {
	n := b.node(value, join(path, "<<"))
	sources := []*node{n}
	if n.kind == list {
		sources = n.items
	}
	for _, s := range sources {
		if s.missing {
			return nil
		}
		if s.kind != mapping {
			b.add(s.at, join(path, "<<"), "merges %s; it can only merge a mapping or a list of mappings", s.kind)
			return nil
		}
	}
	return sources
}
