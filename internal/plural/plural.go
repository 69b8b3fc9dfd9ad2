// Package plural writes how many of something there are, in words that people read.
//
//	plural.Of(1, "backend")  // 1 backend
//	plural.Of(2, "retry")    // 2 retries
package plural

import (
	"fmt"
	"strings"
)

// Of returns n and the noun in the number it has to have.
func Of[N ~int | ~int64 | ~uint64](n N, noun string) string {
	return fmt.Sprintf("%d %s", n, Noun(n == 1, noun))
}

// Noun returns a regular noun in the singular or the plural, for numbers that are
// written otherwise.
func Noun(one bool, noun string) string {
	stem, y := strings.CutSuffix(noun, "y")
	switch {
	case one:
		return noun
	case y && !strings.ContainsAny(noun[len(stem)-1:len(stem)], "aeiou"):
		return stem + "ies"
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "sh"):
		return noun + "es"
	}
	return noun + "s"
}

// Are returns "is" or "are".
func Are[N ~int | ~int64 | ~uint64](n N) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// Were returns "was" or "were".
func Were[N ~int | ~int64 | ~uint64](n N) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// Few lists texts; of more than eight the last words say how many there are besides.
func Few(texts []string) string {
	const most = 8
	if len(texts) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
	}
	return strings.Join(texts, ", ")
}
