package config

import (
	"regexp"
	"strings"
)

// reference is what is special about "$" in a value: an escape or a variable.
// Any other "$" stands for itself.
var reference = regexp.MustCompile(`\$\$|\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// expand puts the text of a scalar into out, with ${NAME} replaced by the
// environment variable and $$ by "$". It runs on values that are parsed already:
// whatever a variable holds stays one value and cannot add keys or items.
func (b *builder) expand(out *node, path, text string) {
	out.text = reference.ReplaceAllStringFunc(text, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		name := strings.Trim(ref, "${}")
		value, ok := b.env(name)
		if !ok {
			b.add(out.at, path, "environment variable %s is not set; set it, or write $${...} for the literal text", name)
			out.missing = true
		}
		out.expanded = true
		return value
	})
}
