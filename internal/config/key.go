package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// key describes one key. The tables of keys in schema.go are the one truth about
// what may be written where: reading, defaults, the messages about unknown keys
// and the test of docs/config.md all come from them.
type key struct {
	name string
	typ  string       // as the reference prints it
	def  string       // default, as it would be written, or a note in parentheses
	read func(*value) // stores the value or fails; nil for a section and for a later key

	// The way back, for the diff: at most one of these. A key without any consists of
	// objects, which diff_service.go and diff_pool.go compare.
	show    func() string   // the value, as read would take it
	members func() []string // those of a list whose order is of no meaning
	held    func() any      // a secret, or what is too long to be shown: only compared

	bounds func() string // what the reference prints after the type; made when it is asked for
	words  []string      // of a choice
	keys   []key         // of a section: the keys in it
	on     func() bool   // of a section that can be off as a whole: whether it is on
	items  []key         // of a list of mappings: the keys of each
	form   string        // of a list of mappings: what one looks like, for messages
	later  bool          // known, but refused until it is built
}

// Defaults in parentheses are notes for the reader, not values.
const (
	required   = "(required)"
	none       = "(none)"
	theAddress = "(the address)"
	fromPool   = "(the pool's)"
	theHosts   = "(the host's)"
)

// section is a mapping of further keys.
func section(name string, keys ...key) key { return key{name: name, keys: keys} }

// when makes a section one that can be off as a whole.
func (k key) when(on func() bool) key {
	k.on = on
	return k
}

// later are keys of the contract that this version does not have.
func later(names ...string) []key {
	keys := make([]key, len(names))
	for i, name := range names {
		keys[i] = key{name: name, later: true}
	}
	return keys
}

// value is a node together with what is needed to report about it.
type value struct {
	*node
	*report
	path string
	bad  bool // something was reported through fail
}

// fail reports a problem with the value. It says what is wrong and what would be
// right.
func (v *value) fail(format string, args ...any) {
	v.bad = true
	switch odd := oddity(v.text); {
	case v.odd:
		return
	case v.expanded:
		format, args = "%s", []any{v.veil(format, args)}
	case odd != "":
		format, args = "%s %s", []any{v.quoted(), odd}
	}
	v.add(v.at, v.path, format, args...)
}

// is reports whether the value is of a kind, and fails if not. The right form is
// an example.
func (v *value) is(k kind, right string) bool {
	switch {
	case v.missing:
	case v.kind == k:
		return true
	case v.odd:
		v.bad = true
	case v.kind == null:
		v.fail("has no value; give it one (%s) or remove the key", right)
	default:
		v.bad = true // of the value itself nothing is told
		v.add(v.at, v.path, "is %s, and must be %s: %s", v.kind, k, right)
	}
	return false
}

// mappingOr is an example of a mapping of the keys: a word that is alone where one is
// wanted becomes the value of the key that knows it.
func (v *value) mappingOr(keys []key) string {
	for _, k := range keys {
		if v.kind == plain && !v.expanded && slices.Contains(k.words, v.text) {
			return "{" + k.name + ": " + v.text + "}"
		}
	}
	return "{" + keys[0].name + ": " + cmp.Or(keys[0].form, "...") + "}"
}

// elements returns the items of a list as values.
func (v *value) elements() []*value {
	out := make([]*value, len(v.items))
	for i, item := range v.items {
		out[i] = &value{node: item, report: v.report, path: index(v.path, i)}
	}
	return out
}

// object is a mapping that is read against its keys, perhaps in layers:
// built-in defaults, the defaults section, its own keys.
type object struct {
	*report
	path string   // "services.web"
	at   position // its name in the file

	// given says where the object's own mapping sets a key, by the path below
	// the object: "timeouts.idle".
	given map[string]position
	wrong map[string]bool // those of given whose value was refused
	above *object         // whose values it inherits; may be nil
}

func newObject(r *report, path string, at position, above *object) *object {
	return &object{report: r, path: path, at: at, above: above, given: map[string]position{}, wrong: map[string]bool{}}
}

// has reports whether the key is given, here or above, rightly or wrongly.
func (o *object) has(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.given[key]
	return ok || o.above.has(key)
}

// gives reports whether the object itself gives the key, rightly or wrongly.
func (o *object) gives(key string) bool {
	_, ok := o.given[key]
	return ok
}

// refused reports whether the key's value, its own or else inherited, was refused.
func (o *object) refused(key string) bool {
	if o == nil {
		return false
	}
	if _, own := o.given[key]; own {
		return o.wrong[key]
	}
	return o.above.refused(key)
}

// defaults stores every built-in default.
func defaults(keys []key) {
	for _, k := range keys {
		switch {
		case k.keys != nil:
			defaults(k.keys)
		case k.read != nil && !strings.HasPrefix(k.def, "("):
			v := &value{node: &node{kind: plain, text: unquote(k.def)}, report: &report{}}
			if k.read(v); v.bad {
				panic("config: the default of " + k.name + " is invalid: " + v.problems.Error())
			}
		}
	}
}

// unquote returns the text of a default written in quotes.
func unquote(s string) string {
	if t, err := strconv.Unquote(s); err == nil {
		return t
	}
	return s
}

// read reads a mapping: every entry against its key, what is unknown refused. It
// returns false if it is no mapping, of which there is no more to say.
func (o *object) read(n *node, keys []key) bool { return o.readAt(n, keys, keys, "") }

func (o *object) readAt(n *node, keys, all []key, below string) bool {
	v := &value{node: n, report: o.report, path: join(o.path, below)}
	if !v.is(mapping, v.mappingOr(keys)) {
		return false
	}
	for _, p := range n.pairs {
		rel := join(below, word(p.key))
		path := join(o.path, rel)
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == p.key })
		switch {
		case i < 0:
			meant, hint := o.suggestKey(p.key, keys, all)
			if odd := oddity(p.key); odd != "" {
				hint = "its name " + odd
			}
			o.add(p.at, path, "no such key; %s", hint)
			if meant != "" && !o.has(join(below, meant)) {
				o.given[join(below, meant)], o.wrong[join(below, meant)] = p.at, true // so it is not missed
			}
			o.wrong[below] = o.wrong[below] || meant == ""
			continue
		case keys[i].later:
			o.add(p.at, path, "not supported yet; remove it")
			continue
		}
		o.given[rel] = p.at
		if k := keys[i]; k.keys != nil {
			o.wrong[rel] = !o.readAt(p.value, k.keys, all, rel) || o.wrong[rel]
		} else {
			v := &value{node: p.value, report: o.report, path: path}
			k.read(v)
			o.wrong[rel] = v.bad || v.missing
		}
	}
	return true
}

// problem reports about several keys together, at the first of them that the
// object itself gives, else at the object's name. It is silent if one of them
// was refused: what was meant is not known.
func (o *object) problem(keys []string, format string, args ...any) {
	if slices.ContainsFunc(keys, o.refused) {
		return
	}
	for _, k := range keys {
		if at, ok := o.given[k]; ok {
			o.add(at, join(o.path, k), format, args...)
			return
		}
	}
	o.add(o.at, join(o.path, keys[0]), format, args...)
}

// missing reports that the first of the keys is not given, at the first of the others
// that the object itself gives, else at the object's name: where it could stand, or
// what asks for it. It is silent if one of them was refused.
func (o *object) missing(keys []string, format string, args ...any) {
	if slices.ContainsFunc(keys, o.refused) {
		return
	}
	at := o.at
	for _, k := range keys[1:] {
		if p, ok := o.given[k]; ok {
			at = p
			break
		}
	}
	o.add(at, join(o.path, keys[0]), format, args...)
}

// plainWord matches keys that messages print as they are.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)

// word is a key of the file as a part of a key path. It may be anything and is
// quoted unless it looks like a key.
func word(key string) string {
	if plainWord.MatchString(key) {
		return key
	}
	return quote(key)
}

// join extends a key path.
func join(path, key string) string {
	switch {
	case key == "":
		return path
	case path == "":
		return key
	}
	return path + "." + key
}

// index extends a key path by a list index, from 0.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
