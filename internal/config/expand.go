package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
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
		out.held = append(out.held, value)
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

// shown is the value as it is written in the file, so that what variables hold is not
// told.
func (v *value) shown() string {
	if v.expanded {
		return v.written
	}
	return v.text
}

// quoted is shown as messages name it.
func (v *value) quoted() string { return quote(v.shown()) }

// veil returns a message about the value that tells nothing of what a variable holds,
// not even a part of it: many a message names the part that is wrong, and some name it
// in another form, as an address or a prefix.
func (v *value) veil(format string, args []any) string {
	const veiled = "what is in %s is not valid here; look at what the variable holds"
	for _, arg := range args {
		if _, made := arg.(fmt.Stringer); made {
			return fmt.Sprintf(veiled, quote(v.written))
		}
	}
	message := hide(v.variables, fmt.Sprintf(format, args...))
	low := strings.ToLower(reference.ReplaceAllString(message, ""))
	for _, secret := range v.held {
		if tells(low, strings.ToLower(secret)) {
			return fmt.Sprintf(veiled, quote(v.written))
		}
	}
	return message
}

// tells reports whether a text has a part of a secret in it. Short ones count where they
// stand alone.
func tells(text, secret string) bool {
	for i := range max(len(secret)-shortestSecret+1, 0) {
		if strings.Contains(text, secret[i:i+shortestSecret]) {
			return true
		}
	}
	return secret != "" && len(secret) < shortestSecret && slices.Contains(strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), secret)
}
