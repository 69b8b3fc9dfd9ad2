package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestOddCharacters: what is invisible or looks like another character is told once and
// by its number, whatever the key and whether the value is in quotes or not.
func TestOddCharacters(t *testing.T) {
	t.Parallel()
	told := 0
	for _, odd := range []rune{'\u00a0', '\u200b', '\u200d', '\u00ad', '\u2060', '\ufeff', '\u3000', '\t', '–', '−', '“', '’', '：', '０', '．'} {
		for _, r := range catalogue() {
			if r.keys != nil || r.later || r.read == nil {
				continue
			}
			for _, value := range []string{fmt.Sprintf("1%cx", odd), fmt.Sprintf("%q", fmt.Sprintf("1%cx", odd))} {
				o := newObject(&report{}, "", position{}, nil)
				n, ok := build(o.report, &source{name: "x.yaml"}, []byte(r.name+": "+value+"\n"), func(string) (string, bool) { return "", false })
				if !ok {
					t.Fatalf("%s: %v", value, o.err())
				}
				o.read(n, []key{r.key})
				var problems Problems
				if !errors.As(o.err(), &problems) {
					continue // it may be meant
				}
				if told++; len(problems) != 1 || !strings.Contains(problems[0].Text, fmt.Sprintf("%U", odd)) && !strings.Contains(problems[0].Text, "must be") {
					t.Errorf("%s: %s: %v", r.path, value, problems)
				}
			}
		}
	}
	if told < 2000 {
		t.Errorf("%d problems only", told)
	}
}
