package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The constructors below make keys that store one value each into *dst.

// scalar reports whether the value is text one can look at, and fails if it is
// no scalar. Of a variable that is not set there is no more to say.
func (v *value) scalar(right string) bool {
	if v.expanded {
		v.wrote(v)
	}
	return !v.missing && (v.kind == quoted || v.is(plain, right))
}

// unquoted is scalar for what is written without quotes, as numbers and booleans
// are. The environment only gives text, so a quoted variable is as good as a plain one.
func (v *value) unquoted(right string) bool {
	if v.scalar(right) && (v.kind == plain || v.expanded) {
		return true
	}
	if v.kind == quoted && !v.missing {
		v.fail("%s is in quotes; write %s without them", v.quoted(), right)
	}
	return false
}

// listOr is an endpoint in a list of its own, which is how it was meant where a list
// is wanted; for anything else it is the example.
func (v *value) listOr(example string) string {
	if _, _, problem := parseEndpoint(v.text, true); problem == "" && (v.kind == plain || v.kind == quoted) {
		return "[" + v.quoted() + "]"
	}
	return example
}

// text is any text that check accepts; check returns what would be right, or "".
func text(name, typ, def string, dst *string, check func(string) string) key {
	return key{name: name, typ: typ, def: def, read: func(v *value) {
		if !v.scalar("text") {
			return
		}
		if right := check(v.text); right != "" {
			v.fail("%s is not valid; %s", v.quoted(), right)
			return
		}
		*dst = v.text
	}, show: func() string { return *dst }}
}

// boolean is true or false.
func boolean(name, def string, dst *bool) key {
	return key{name: name, typ: "boolean", def: def, read: func(v *value) {
		if !v.unquoted("true or false") {
			return
		}
		switch v.text {
		case "true", "false":
			*dst = v.text == "true"
		default:
			v.fail("%s is not a boolean; write true or false", v.quoted())
		}
	}, show: func() string { return strconv.FormatBool(*dst) }}
}

// choice is one of the words that mean something; those of soon are refused as not
// built yet.
func choice[T comparable](name, def string, dst *T, all []meaning[T], soon ...string) key {
	now := make([]string, len(all))
	for i, m := range all {
		now[i] = m.word
	}
	return key{name: name, typ: "one of", def: def, words: now, read: func(v *value) {
		if v.scalar(oneOf(now)) && v.among(now, soon) {
			*dst = all[slices.Index(now, v.text)].is
		}
	}, show: func() string {
		if i := slices.IndexFunc(all, func(m meaning[T]) bool { return m.is == *dst }); i >= 0 {
			return now[i]
		}
		return "" // not given, and without a default
	}}
}

// meaning is a word of a choice and the value that it stands for.
type meaning[T any] struct {
	word string
	is   T
}

// themselves are words that are stored as they are written.
func themselves(words ...string) []meaning[string] {
	all := make([]meaning[string], len(words))
	for i, w := range words {
		all[i] = meaning[string]{w, w}
	}
	return all
}

// either are the words for a setting that is on or off.
func either(off, on string) []meaning[bool] { return []meaning[bool]{{off, false}, {on, true}} }

// among reports whether the text is one of the words of now, and fails if not.
func (v *value) among(now, soon []string) bool {
	if slices.Contains(now, v.text) {
		return true
	}
	if slices.Contains(soon, v.text) {
		v.fail("%q is not supported yet; write %s", v.text, oneOf(now))
		return false
	}
	if lower := strings.ToLower(v.text); slices.Contains(now, lower) && !v.expanded {
		v.fail("%s is not known here, where words are in lower case; write %s (did you mean %q?)", v.quoted(), oneOf(now), lower)
		return false
	}
	hint := ""
	if word := Nearest(v.text, now); word != "" && !v.expanded {
		hint = fmt.Sprintf(" (did you mean %q?)", word)
	}
	v.fail("%s is not known here; write %s%s", v.quoted(), oneOf(now), hint)
	return false
}

// isDecimal reports whether a whole number is written as it has to be: no leading zero
// (octal to some, decimal to others), no separators, no sign but a minus, which is for
// messages about the range.
func isDecimal(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	return digits != "" && (digits[0] != '0' || digits == "0") && strings.Trim(digits, "0123456789") == ""
}

// number is a whole number from lo to hi.
func number(name, def string, dst *int, lo, hi int) key {
	bounds := func() string { return fmt.Sprintf(", %d to %d", lo, hi) }
	return key{name: name, typ: "number", bounds: bounds, def: def, read: func(v *value) {
		if !v.unquoted("a number") {
			return
		}
		if !isDecimal(v.text) {
			v.fail("%s is not a whole number; write one from %d to %d, digits only", v.quoted(), lo, hi)
			return
		}
		n, err := strconv.Atoi(v.text)
		if err != nil || n < lo || n > hi {
			v.fail("%s is out of range; write a number from %d to %d", v.short(), lo, hi)
			return
		}
		*dst = n
	}, show: func() string { return strconv.Itoa(*dst) }}
}

// short is the text without quotes, for values that are known to be numbers.
func (v *value) short() string { return strings.Trim(v.quoted(), `"`) }

// maxCount bounds counts of connections: no kernel has more descriptors.
const maxCount = 1 << 30

// count is a whole number from 0 that may end in k, m or g, powers of 1024.
func count(name, def string, dst *int) key { return countFrom(name, def, dst, 0, "1g") }

// countFrom is a count from lo to hi.
func countFrom(name, def string, dst *int, lo int, hi string) key {
	bounds := func() string { return fmt.Sprintf(", %d to %s", lo, hi) }
	return key{name: name, typ: "count", bounds: bounds, def: def, read: func(v *value) {
		if !v.unquoted("a number") {
			return
		}
		most, _ := parseCount(hi)
		n, ok := parseCount(v.text)
		if !ok {
			v.fail("%s is not a count; write a number from %d to %s, such as 500 or 10k (10240)", v.quoted(), lo, hi)
			return
		}
		if n < lo || n > most {
			v.fail("%s is out of range; write a number from %d to %s", v.short(), lo, hi)
			return
		}
		*dst = n
	}, show: func() string { return strconv.Itoa(*dst) }}
}

// parseCount reads a number with its factor; one that is far too large counts as
// just too large.
func parseCount(s string) (n int, ok bool) {
	shift := 0
	if i := len(s) - 1; i >= 0 && strings.IndexByte("kmg", s[i]) >= 0 {
		s, shift = s[:i], 10*(strings.IndexByte("kmg", s[i])+1)
	}
	if !isDecimal(s) || s[0] == '-' {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxCount>>shift {
		return maxCount + 1, true
	}
	return n << shift, true
}

// year is the longest duration there is: beyond it nobody means what he writes.
const year = 365 * 24 * time.Hour

// duration is a time from lo to hi, with a unit.
func duration(name, def string, dst *time.Duration, lo, hi time.Duration) key {
	return span(name, def, dst, func() string { return short(lo) + " to " + short(hi) }, func(d time.Duration) bool {
		return lo <= d && d <= hi
	})
}

// durationOrOff is a duration that may also be 0s.
func durationOrOff(name, def string, dst *time.Duration, lo, hi time.Duration) key {
	return span(name, def, dst, func() string { return "0s or " + short(lo) + " to " + short(hi) }, func(d time.Duration) bool {
		return d == 0 || lo <= d && d <= hi
	})
}

// seconds is a duration of whole seconds, which is how the kernel counts it.
func seconds(name, def string, dst *time.Duration, hi time.Duration) key {
	return span(name, def, dst, func() string { return "whole seconds, 1s to " + short(hi) }, func(d time.Duration) bool {
		return time.Second <= d && d <= hi && d%time.Second == 0
	})
}

func span(name, def string, dst *time.Duration, limits func() string, ok func(time.Duration) bool) key {
	bounds := func() string { return ", " + limits() }
	return key{name: name, typ: "duration", bounds: bounds, def: def, read: func(v *value) {
		if v.scalar("a duration") {
			v.duration("", dst, limits, ok)
		}
	}, show: func() string { return dst.String() }}
}

// decimal writes a number with decimals as it can be read.
func decimal(f *float64) func() string {
	return func() string { return strconv.FormatFloat(*f, 'f', -1, 64) }
}

// listed is the way back of a list that is only compared.
func listed[T any](l *[]T) func() any { return func() any { return *l } }

// duration stores the duration that the value is, or that follows its first word. It
// reports whether it is one.
func (v *value) duration(word string, dst *time.Duration, limits func() string, ok func(time.Duration) bool) bool {
	text := strings.TrimSpace(strings.TrimPrefix(v.text, word))
	shown := strings.TrimSpace(strings.TrimPrefix(v.shown(), word))
	switch d, err := parseDuration(text); {
	case errors.Is(err, errNoUnit):
		v.fail("%s has no unit; write %s%ss for seconds, %s%sms for milliseconds", shown, word, shown, word, shown)
	case errors.Is(err, errNoDuration):
		if right := meantDuration(text); right != "" && !v.expanded {
			v.fail("%s is not a duration; write %s%s", quote(shown), word, right)
			return false
		}
		v.fail("%s is not a duration; write %sa number and a unit (ms, s, m, h), such as %s500ms or %s1m30s", quote(shown), word, word, word)
	case err != nil || !ok(d):
		v.fail("%s is out of range; allowed is %s", shown, limits())
	default:
		*dst = d
		return true
	}
	return false
}

var (
	errNoUnit     = errors.New("no unit")
	errNoDuration = errors.New("not a duration")

	units = regexp.MustCompile(`^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)
)

// otherUnits are how others write what is written here as so many of the unit.
var otherUnits = map[string]struct {
	times int
	unit  string
}{
	"d": {24, "h"}, "day": {24, "h"}, "days": {24, "h"}, "w": {168, "h"}, "week": {168, "h"}, "weeks": {168, "h"},
	"hr": {1, "h"}, "hour": {1, "h"}, "hours": {1, "h"}, "min": {1, "m"}, "mins": {1, "m"}, "minute": {1, "m"}, "minutes": {1, "m"},
	"sec": {1, "s"}, "secs": {1, "s"}, "second": {1, "s"}, "seconds": {1, "s"}, "msec": {1, "ms"},
	"h": {1, "h"}, "m": {1, "m"}, "s": {1, "s"}, "ms": {1, "ms"},
}

var otherDuration = regexp.MustCompile(`^([0-9]{1,6}) *([A-Za-z]+)$`)

// meantDuration is a duration with a unit of others, with a blank or in capitals, as
// it is written here, or "".
func meantDuration(s string) string {
	m := otherDuration.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	u, ok := otherUnits[strings.ToLower(m[2])]
	n, err := strconv.Atoi(m[1])
	if !ok || err != nil {
		return ""
	}
	return strconv.Itoa(n*u.times) + u.unit
}

// parseDuration is time.ParseDuration with errors that can be told apart; any
// other than the two above is a duration beyond what fits.
func parseDuration(s string) (time.Duration, error) {
	switch {
	case s != "" && strings.Trim(s, "0123456789.") == "":
		return 0, errNoUnit
	case !units.MatchString(s):
		return 0, errNoDuration
	}
	return time.ParseDuration(s)
}

// short prints a duration without its zero parts: "1h" rather than "1h0m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Written returns a duration as it is written in a file.
func Written(d time.Duration) string { return short(d) }
