package config

import (
	"slices"
	"strings"
	"testing"
)

// What a key shows of its value is what it would be read from.
func TestKeysReadWhatTheyShow(t *testing.T) {
	t.Parallel()
	f, s, p := &File{}, &service{}, &pool{}
	b := &backend{}
	for _, table := range [][]key{fileKeys(f, &root{}), serviceKeys(s), poolKeys(p), backendKeys(b)} {
		defaults(table)
		walk(table, "", func(path string, k key) {
			if k.show == nil {
				return
			}
			text := k.show()
			if text == "" && strings.HasPrefix(k.def, "(") {
				return // not given
			}
			v := &value{node: &node{kind: plain, text: text}, report: &report{}}
			if k.read(v); v.bad || k.show() != text {
				t.Errorf("%s: shows %q, which is read as %q: %v", path, text, k.show(), v.err())
			}
		})
	}
}

// Every key can be compared; those that are no single values are compared where this
// says.
func TestKeysCanBeCompared(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"services": "Diff", "pools": "Diff", "defaults.services": "in what inherits them", "defaults.pools": "in what inherits them",
		"services.NAME.listen": "listeners", "services.NAME.sni": "sni", "services.NAME.tls.certificates": "certificates",
		"pools.NAME.backends": "backends", "pools.NAME.resolve.servers": "servers",
		"pools.NAME.backends[].address": "backends",
	}
	for _, r := range catalogue() {
		ways := 0
		for _, has := range []bool{r.show != nil, r.members != nil, r.held != nil, elsewhere[r.path] != ""} {
			if has {
				ways++
			}
		}
		if r.keys == nil && !r.later && ways != 1 {
			t.Errorf("%s: %d ways to compare", r.path, ways)
		}
	}
}

// A reload names the keys of the process by their sections. Those of services and pools
// are changed one by one with what is explained of them.
func TestDiffNamesKeysOfTheProcess(t *testing.T) {
	t.Parallel()
	_, rows := readReference(t)
	n := 0
	for _, c := range rows {
		path, example := strings.Trim(c[0], "`"), strings.Trim(c[4], "`")
		section, key, below := strings.Cut(path, ".")
		if !below || !slices.Contains([]string{"admin", "log", "runtime", "cluster"}, section) || path == "runtime.workers" {
			continue
		}
		n++
		lines := Diff(parsed(t, "services: {}"), parsed(t, "services: {}\n"+example))
		if len(lines) != 1 || !strings.HasPrefix(lines[0], section+": "+key+" ") {
			t.Errorf("of %s a reload says %q", example, lines)
		}
	}
	if n < 10 {
		t.Errorf("%d keys only", n)
	}
}
