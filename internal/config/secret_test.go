package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
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

// secrets are in turn what breaks a value in many ways.
var secrets = map[string]string{
	"S0": "Xq7/zzkw9 pl0mb", "S1": "vqj9wkx:8zzq7x", "S2": "(zq7xkw9jvb", "S3": "/zq7xkw9j//vbq0w/",
	"S4": "987654321987", "S5": strings.Repeat("zq7xkw9j", 12), "S6": "zq7\x01kw9xjvb",
}

func secretly(name string) (string, bool) {
	value, ok := secrets[name]
	return value, ok
}

// secretFiles gives a key all the secrets by variables, in many shapes: each in a service
// or a pool of its own, or as the only one in a key of the file.
func secretFiles(path string) []string {
	const base = "runtime: {allow_exec: true}\nservices: {%s}\npools: {%s}\n"
	var whole, services, pools []string
	for i, name := range slices.Sorted(maps.Keys(secrets)) {
		for k, form := range []string{`"${%s}"`, `["x${%[1]s}:80", "x${%[1]s}:80"]`} {
			value, n := fmt.Sprintf(form, name), 2*i+k
			listen, pool := fmt.Sprintf("listen: [\":%d\"], pool: pg", 7000+n), "backends: [10.0.0.1:80]"
			switch keys := strings.Split(path, "."); {
			case strings.HasPrefix(path, "services.NAME."):
				services = append(services, fmt.Sprintf("web%d: {%s}", n, instead(listen, keys[2:], value)))
				pools = []string{"pg: {" + pool + "}"}
			case strings.HasPrefix(path, "pools.NAME."):
				services = append(services, fmt.Sprintf("web%d: {%s%d}", n, listen, n))
				pools = append(pools, fmt.Sprintf("pg%d: {%s}", n, instead(pool, keys[2:], value)))
			default:
				whole = append(whole, nested(keys, value))
			}
		}
	}
	if whole != nil {
		return whole
	}
	return []string{fmt.Sprintf(base, strings.Join(services, ", "), strings.Join(pools, ", "))}
}

// instead gives an object a key with a value, in place of the one it may have.
func instead(object string, keys []string, value string) string {
	var kept []string
	for _, given := range strings.Split(object, ", ") {
		if !strings.HasPrefix(given, strings.TrimSuffix(keys[0], "[]")+":") {
			kept = append(kept, given)
		}
	}
	return strings.Join(append(kept, nested(keys, value)), ", ")
}

// TestVariablesAreNotTold: whatever is said about any key that holds secrets, a part of
// one is not in it.
func TestVariablesAreNotTold(t *testing.T) {
	t.Parallel()
	var said atomic.Int64
	t.Run("keys", func(t *testing.T) {
		for part := range slices.Chunk(catalogue(), 20) {
			t.Run(part[0].path, func(t *testing.T) {
				t.Parallel()
				for _, r := range part {
					for _, text := range secretFiles(r.path) {
						said.Add(tellsNothing(t, text))
					}
				}
			})
		}
	})
	if said.Load() < 3000 {
		t.Errorf("%d problems only", said.Load())
	}
}

// tellsNothing returns how many problems a file with secrets has, none of which tells of
// a secret.
func tellsNothing(t *testing.T, text string) int64 {
	f, err := parse("x.yaml", []byte(text), secretly)
	if err == nil {
		for name, secret := range secrets {
			if strings.Contains(text, "${"+name+"}") && f.Hide("x"+secret) == "x"+secret {
				t.Errorf("%s: %s is not hidden", text, name)
			}
		}
		return 0
	}
	said := err.Error()
	for _, secret := range secrets {
		if leaks(said, secret) {
			t.Errorf("%s\n%s", text, said)
		}
	}
	return 1 + int64(strings.Count(said, "\n"))
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
	t.Parallel()
	env := func(string) (string, bool) { return "5", true }
	_, err := parse("x.yaml", []byte("services: {}\npools: {pg: {backends: [10.0.0.1:80], check: {timeout: \"${POISE_TEST_LAG}\"}}}\n"), env)
	const want = `x.yaml:2:56: pools.pg.check.timeout: ${POISE_TEST_LAG} has no unit; write ${POISE_TEST_LAG}s for seconds, ${POISE_TEST_LAG}ms for milliseconds`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
