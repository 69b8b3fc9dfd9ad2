package disk_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/poise-lb/poise/l4/disk"
)

// TestMark: a file is read until its stamp has stayed the same for a while, wherever
// the wall clock has gone. That of the test is years behind the stamps, and one stamp
// is years ahead of the real one.
func TestMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var m disk.Mark
		look := func(what string, want bool) {
			t.Helper()
			s, _ := disk.StampOf(path)
			got := m.Changed(s)
			if got != want {
				t.Errorf("%s: changed %t", what, got)
			}
			if got {
				m.Read()
			}
		}
		settles := func(what string) {
			t.Helper()
			look(what+", seen first", true)
			time.Sleep(1900 * time.Millisecond)
			look(what+", soon after", true)
			time.Sleep(200 * time.Millisecond)
			look(what+", settled, but not read since", true)
			look(what+", read", false)
			time.Sleep(time.Hour)
			look(what+", later", false)
		}
		settles("missing")
		write("one")
		settles("new")
		ahead := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := os.Chtimes(path, ahead, ahead); err != nil {
			t.Fatal(err)
		}
		settles("from the future")
		write("longer")
		settles("written to")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		settles("removed")
	})
}

// A read that its caller could not use does not count, however settled the file is.
func TestMarkNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m disk.Mark
		for range 3 {
			if !m.Changed(disk.Stamp{}) {
				t.Error("not to be read")
			}
			time.Sleep(time.Minute)
		}
	})
}
