package watch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"a", "b", "b/c"} {
		must(os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	must(os.WriteFile(filepath.Join(dir, "b/c/key"), nil, 0o600))
	must(os.Symlink("../b/c/key", filepath.Join(dir, "a/key")))
	got := folders(filepath.Join(dir, "a/key"))
	if want := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b/c")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	must(os.Symlink("loop", filepath.Join(dir, "loop")))
	if got := folders(filepath.Join(dir, "loop")); len(got) < 40 || len(got) > 50 {
		t.Errorf("a link to itself is followed %d times", len(got))
	}
}
