package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnit: systemd has nothing to say about the shipped unit, and rates its
// sandbox at 2.0 or better.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	text, err := os.ReadFile("../../configs/systemd/poise.service")
	if err != nil {
		t.Fatal(err)
	}
	// verify looks for the program, which is not installed where it is tested.
	unit := filepath.Join(t.TempDir(), "poise.service")
	installed := strings.ReplaceAll(string(text), "/usr/bin/poise", "/bin/true")
	if err := os.WriteFile(unit, []byte(installed), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", unit},
		{"security", "--offline=true", "--no-pager", "--threshold=20", unit},
	} {
		out, err := exec.Command(analyze, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
