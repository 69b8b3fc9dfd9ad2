package watch_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/poise-lb/poise/l4/watch"
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
		var m watch.Mark
		look := func(what string, want bool) {
			t.Helper()
			s, _ := watch.StampOf(path)
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
		var m watch.Mark
		for range 3 {
			if !m.Changed(watch.Stamp{}) {
				t.Error("not to be read")
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestFile: a file is parsed again when it has changed; what it meant last outlives
// what it cannot mean, and its absence.
func TestFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "number")
		parsed := 0
		f := watch.File[int]{Path: path, Limit: 10, Parse: func(data []byte) (int, error) {
			parsed++
			return strconv.Atoi(string(data))
		}}
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct {
			what   string
			do     func()
			want   int
			fails  bool
			parsed int // since the step before
		}{
			{"no file", func() {}, 0, true, 0},
			{"new", func() { write("1") }, 1, false, 1},
			{"settling", func() {}, 1, false, 1},
			{"settled", func() { time.Sleep(time.Minute) }, 1, false, 1},
			{"read for good", func() { time.Sleep(time.Minute) }, 1, false, 0},
			{"moved away with its directory", func() { os.Rename(dir, dir+"2") }, 1, true, 0},
			{"back with the old stamp", func() { os.Rename(dir+"2", dir) }, 1, false, 1},
			{"of another size", func() { write("22") }, 22, false, 1},
			{"bad", func() { write("bad") }, 22, true, 1},
			{"still bad, and settled", func() { time.Sleep(time.Minute) }, 22, true, 1},
			{"bad for an hour", func() { time.Sleep(time.Hour) }, 22, true, 1},
			{"too large", func() { write("12345678901") }, 22, true, 0},
			{"removed", func() { os.Remove(path) }, 22, true, 0},
			{"back", func() { write("3") }, 3, false, 1},
		} {
			before := parsed
			tt.do()
			got, err := f.Get()
			if got != tt.want || (err != nil) != tt.fails || parsed-before != tt.parsed {
				t.Errorf("%s: %d, %v, parsed %d times; want %d, an error %t, %d times", tt.what, got, err, parsed-before, tt.want, tt.fails, tt.parsed)
			}
		}
	})
}
