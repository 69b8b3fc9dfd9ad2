package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// The lists are read, so what is wrong with them comes out: a reload would be
// refused.
func TestCheckReadsLists(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	path := rig.WriteFile(t, "services: {web: {listen: [\":80\"], pool: web, access: {allow_files: ["+list+"]}}}\npools: {web: {backends: [10.0.1.1:80]}}\n")
	for content, want := range map[string]string{
		"\n10.0.0.300\n": "services.web.access.allow_files[0]: " + list + `:2: "10.0.0.300" is neither`,
		"":               "",
	} {
		if err := os.WriteFile(list, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"check"}, {"check", "--explain"}} {
			stdout, stderr, code := rig.CLI(t, append(args, "-c", path)...)
			if (code != 0) != (want != "") || !strings.Contains(stderr, want) || (code == 0) != (stdout != "") {
				t.Errorf("%v of %q: exit code %d, %q, %q", args, content, code, stdout, stderr)
			}
			if explains := strings.Contains(strings.Join(strings.Fields(stdout), " "), "nobody but "+list+" (0 when merged)"); explains != (code == 0 && len(args) == 2) {
				t.Errorf("%v of %q: %s", args, content, stdout)
			}
		}
	}
}
