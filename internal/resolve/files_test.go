package resolve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// watched is a watcher of one file whose content is a word, "bad" for bad content.
type watched struct {
	*Files[string]
	t    *testing.T
	path string

	mu   sync.Mutex
	told []string
}

func watchOne(t *testing.T, path string) *watched {
	w := &watched{t: t, path: path}
	w.Files = NewFiles(func(_ string, st FileStatus[string]) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, strings.ReplaceAll(st.Value+"|"+st.Detail, filepath.Dir(path), ""))
	})
	w.set(path, "")
	time.Sleep(lookInterval / 2) // from here on, in between two looks
	return w
}

func (w *watched) set(path, prefix string) {
	w.Set([]FileTarget[string]{{Key: "k", Path: path, Parse: func(data []byte) (string, error) {
		if strings.Contains(string(data), "bad") {
			return "", errors.New("bad content")
		}
		return prefix + string(data), nil
	}}})
}

// look lets the watcher look once and returns what was told since the last time.
func (w *watched) look() string {
	time.Sleep(lookInterval)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.Join(w.told, ", ")
	w.told = nil
	return s
}

func (w *watched) expect(what, want string) {
	w.t.Helper()
	if got := w.look(); got != want {
		w.t.Errorf("%s: told %q, want %q", what, got, want)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func swap(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestFiles goes through the ways to replace a file.
func TestFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "list")
		put(t, path, "one")
		w := watchOne(t, path)
		defer w.Close()
		if st, _ := w.Status("k"); st.Value != "one" || !st.Good {
			t.Errorf("Set did not read the file: %+v", st)
		}
		w.expect("at first", "one|")
		w.expect("without a change", "")

		put(t, path+".new", "two")
		swap(t, path+".new", path)
		w.expect("renamed", "two|")

		put(t, path, "three")
		w.expect("written in place, just now", "")
		w.expect("written in place", "three|")
		put(t, path, "thr")
		time.Sleep(lookInterval)
		put(t, path, "three and four")
		w.expect("while it is written", "")
		w.expect("when it is written", "three and four|")

		put(t, path+".new", "bad")
		swap(t, path+".new", path)
		w.expect("bad content", "three and four|bad content")
		w.expect("bad content, later", "")
		put(t, path+".new", "three and four")
		swap(t, path+".new", path)
		w.expect("good again", "three and four|")

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		w.expect("removed", "three and four|open /list: no such file or directory")
		put(t, path, "five")
		w.expect("back", "five|")

		put(t, path+".new", strings.Repeat("x", MaxFile+1))
		swap(t, path+".new", path)
		w.expect("too large", "five|read /list: is larger than 4 MiB")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		w.expect("a folder", "five|read /list: is a directory, and must be a regular file")

		// What Set changes.
		put(t, path+".other", "six")
		w.set(path+".other", "")
		w.expect("another path", "six|")
		w.set(path+".other", "<")
		if st, _ := w.Status("k"); st.Value != "<six" {
			t.Errorf("with another Parse: %+v", st)
		}
		w.look()
		w.set("/nonexistent", "")
		w.expect("a path to nowhere", "<six|open /nonexistent: no such file or directory")
		w.Set(nil)
		if _, ok := w.Status("k"); ok {
			t.Error("a removed file has a status")
		}
	})
}

// TestFileMissing: a file that is not there yet is waited for.
func TestFileMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		w := watchOne(t, path)
		defer w.Close()
		if st, _ := w.Status("k"); st.Good || st.Detail == "" {
			t.Errorf("got %+v", st)
		}
		w.expect("missing", "|open /list: no such file or directory")
		put(t, path, "one")
		w.expect("there", "one|")
	})
}

// TestFileLinks swaps symbolic links, at the end of the path and on the way to it
// as a mounted Kubernetes ConfigMap does.
func TestFileLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		link := func(to, name string) {
			t.Helper()
			tmp := filepath.Join(dir, "tmp")
			if err := os.Symlink(to, tmp); err != nil {
				t.Fatal(err)
			}
			swap(t, tmp, filepath.Join(dir, name))
		}
		for i := range 4 {
			folder := filepath.Join(dir, fmt.Sprintf("v%d", i))
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(folder, "list"), fmt.Sprintf("v%d", i))
		}
		// All of one size and one time: only the inode differs.
		old := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		for i := range 4 {
			if err := os.Chtimes(filepath.Join(dir, fmt.Sprintf("v%d", i), "list"), old, old); err != nil {
				t.Fatal(err)
			}
		}
		link("v0", "..data")
		link("..data/list", "list")
		w := watchOne(t, filepath.Join(dir, "list"))
		defer w.Close()
		w.expect("at first", "v0|")
		link("v1", "..data")
		w.expect("link on the way", "v1|")
		link("v2/list", "list")
		w.expect("link at the end", "v2|")
		link("nowhere", "list")
		w.expect("dangling", "v2|open /list: no such file or directory")
		link("v2/list", "list")
		w.expect("as before", "v2|")
	})
}

// TestFilesUnread: a file that stays as it is is not read again and again, wherever
// the wall clock is set to.
func TestFilesUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock is years behind the file's
		path := filepath.Join(t.TempDir(), "list")
		put(t, path, "one")
		f := &file[string]{FileTarget: FileTarget[string]{Path: path}}
		for i, want := range []string{
			"one true <nil>", "one false <nil>", // seen for too short a time
			"one false <nil>", " false <nil>", " false <nil>",
		} {
			data, fresh, err := f.read()
			if got := fmt.Sprintf("%s %t %v", data, fresh, err); got != want {
				t.Errorf("look %d: %s", i, got)
			}
			time.Sleep(lookInterval)
		}
	})
}

// TestFilesAtRandom replaces a file while it is watched on the real clock; what
// comes last is what counts.
func TestFilesAtRandom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	put(t, path, "x")
	w := watchOne(t, path)
	defer w.Close()
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range 300 {
			put(t, path+".new", fmt.Sprint(i))
			swap(t, path+".new", path)
			time.Sleep(4 * time.Millisecond)
		}
	})
	for range 100 {
		w.set(path, "")
		time.Sleep(5 * time.Millisecond)
	}
	writing.Wait()
	eventually(t, "the last content", func() bool {
		st, _ := w.Status("k")
		return st.Value == "299" && st.Detail == ""
	})
}
