package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// leaks reports whether a part of a secret that is long enough to be told is in a text.
func leaks(text, secret string) bool {
	text, secret = strings.ToLower(text), strings.ToLower(secret)
	for i := range len(secret) - 5 {
		if strings.Contains(text, secret[i:i+6]) {
			return true
		}
	}
	return false
}

// TestVariablesAreNotTold gives every key a secret by a variable, in turn and in many
// shapes. Whatever is said about it, a part of the secret is not in it.
func TestVariablesAreNotTold(t *testing.T) {
	const base = "runtime: {allow_exec: true}\nservices: {web: {listen: [\":7000\"], pool: pg%s}}\npools: {pg: {backends: [10.0.0.1:80]%s}}\n"
	said := 0
	for _, secret := range []string{
		"Xq7/zzkw9 pl0mb", "vqj9wkx:8zzq7x", "(zq7xkw9jvb", "/zq7xkw9j//vbq0w/", "987654321987", strings.Repeat("zq7xkw9j", 12), "zq7\x01kw9xjvb",
	} {
		t.Setenv("POISE_TEST_SECRET", secret)
		if strings.ContainsRune(secret, 0) || os.Getenv("POISE_TEST_SECRET") != secret {
			t.Fatal("the environment does not hold it")
		}
		for _, r := range catalogue() {
			for _, form := range []string{`"${POISE_TEST_SECRET}"`, `["x${POISE_TEST_SECRET}:80", "x${POISE_TEST_SECRET}:80"]`} {
				text := nested(strings.Split(r.path, "."), form)
				switch {
				case strings.HasPrefix(r.path, "services.NAME."):
					text = fmt.Sprintf(base, ", "+nested(strings.Split(strings.TrimPrefix(r.path, "services.NAME."), "."), form), "")
				case strings.HasPrefix(r.path, "pools.NAME."):
					text = fmt.Sprintf(base, "", ", "+nested(strings.Split(strings.TrimPrefix(r.path, "pools.NAME."), "."), form))
				}
				text = strings.Replace(text, ", pool: pg, pool:", ", pool:", 1)
				text = strings.Replace(text, `listen: [":7000"], pool: pg, listen:`, `pool: pg, listen:`, 1)
				text = strings.Replace(text, `backends: [10.0.0.1:80], backends:`, `backends:`, 1)
				f, err := Parse("x.yaml", []byte(text))
				if err == nil {
					if f.Hide("x"+secret) == "x"+secret {
						t.Errorf("%s: not hidden", text)
					}
					continue
				}
				said++
				if leaks(err.Error(), secret) {
					t.Errorf("%s\n%v", text, err)
				}
			}
		}
	}
	if said < 500 {
		t.Errorf("%d errors only", said)
	}
}

// nested is a value below keys: "a: {b: value}", items of lists in brackets.
func nested(keys []string, value string) string {
	key, list := strings.CutSuffix(keys[0], "[]")
	if len(keys) > 1 {
		value = "{" + nested(keys[1:], value) + "}"
	}
	if list {
		value = "[" + value + "]"
	}
	return key + ": " + value
}

// TestShortVariablesAreNotTold: what is named itself is named as it is written.
func TestShortVariablesAreNotTold(t *testing.T) {
	t.Setenv("POISE_TEST_LAG", "5")
	_, err := Parse("x.yaml", []byte("services: {}\npools: {pg: {backends: [10.0.0.1:80], check: {timeout: \"${POISE_TEST_LAG}\"}}}\n"))
	const want = `x.yaml:2:56: pools.pg.check.timeout: ${POISE_TEST_LAG} has no unit; write ${POISE_TEST_LAG}s for seconds, ${POISE_TEST_LAG}ms for milliseconds`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
