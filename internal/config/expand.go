package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// reference is what is special about "$" in a value: an escape or a variable.
// Any other "$" stands for itself.
var reference = regexp.MustCompile(`\$\$|\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// expand puts the text of a scalar into out, with ${NAME} replaced by the
// environment variable and $$ by "$". It runs on values that are parsed already:
// whatever a variable holds stays one value and cannot add keys or items.
func (b *builder) expand(out *node, path, text string) {
	out.written = text
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
		if v := (Variable{ref, value}); len(value) >= shortestSecret && !slices.Contains(b.variables, v) {
			b.variables = append(b.variables, v)
		}
		return value
	})
}

// A Variable of the environment is part of the configuration. Its value may be a
// secret, whatever key it is given to, and is not for messages.
type Variable struct{ Ref, Value string }

// shortestSecret is the length from which a value is looked for in texts: shorter ones
// are in any text by chance. Where a value is named itself its length does not matter.
const shortestSecret = 4

// hide writes the references to the variables in place of their values.
func hide(variables []Variable, s string) string {
	for _, v := range variables {
		for _, form := range []string{v.Value, strings.Trim(quote(v.Value), `"`), strings.ToLower(v.Value)} {
			s = strings.ReplaceAll(s, form, v.Ref)
		}
		cut, _, found := strings.Cut(s, "…") // by quote
		for n := min(len(v.Value), len(cut)); found && n >= shortestSecret; n-- {
			if strings.HasSuffix(cut, v.Value[:n]) {
				s = cut[:len(cut)-n] + v.Ref + s[len(cut):]
				break
			}
		}
	}
	return s
}

// Hide is s with references to variables in place of what they hold, where that is
// long enough to be told from other text.
func (f *File) Hide(s string) string { return hide(f.Variables, s) }

// quoted shows the value in a message: as it is written in the file, so that what
// variables hold is not told.
func (v *value) quoted() string {
	if v.expanded {
		return quote(v.written)
	}
	return quote(v.text)
}

// veil returns a message about the value that tells nothing of what a variable holds,
// not even a part of it: many a message names the part that is wrong.
func (v *value) veil(message string) string {
	message = hide(v.variables, message)
	low := strings.ToLower(reference.ReplaceAllString(message, ""))
	for _, variable := range v.variables {
		if !strings.Contains(v.text, variable.Value) {
			continue // of another value
		}
		secret := strings.ToLower(variable.Value)
		for i := range len(secret) - shortestSecret + 1 {
			if strings.Contains(low, secret[i:i+shortestSecret]) {
				return fmt.Sprintf("what is in %s is not valid here; look at what the variable holds", quote(v.written))
			}
		}
	}
	return message
}
